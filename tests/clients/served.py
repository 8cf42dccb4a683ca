"""The stack that all clients ask: `paceline up` with the demo model under a published chat template that takes tools.

What the model says means nothing, so a client's script asks for what a grammar decides: a forced call, a schema.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cli.stackproc import Api, up
from tests.published_templates import published

from paceline_workers import demo

TEMPLATE = "Qwen-Qwen2.5-7B-Instruct"


@contextmanager
def stack(scratch: Path) -> Iterator[Api]:
    """Gateway and worker, until the block ends."""
    manifest = scratch / "clients.json"
    manifest.write_text(json.dumps(_service(model_folder(scratch))))
    with up(scratch, file=manifest) as run:
        yield run.ready()


def model_folder(scratch: Path) -> Path:
    """The demo model under the other template; also a tokenizer for clients that count tokens themselves."""
    folder = scratch / "model"
    if not folder.exists():
        shutil.copytree(demo.FOLDER, folder)
        path = folder / "tokenizer_config.json"
        settings = json.loads(path.read_text()) | {"chat_template": published(TEMPLATE)}
        path.write_text(json.dumps(settings))
    return folder


def _service(folder: Path) -> dict[str, Any]:
    return {
        "apiVersion": "paceline.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": "clients"},
        "spec": {
            "model": {"source": f"file://{folder}", "servedName": "demo"},
            "classes": {"interactive": {"slo": {"ttft": {"p95": "5s"}, "tpot": {"p95": "1s"}}}},
            "pools": [{"name": "main", "accelerator": "cpu", "replicas": {"min": 1, "max": 1}}],
        },
    }
