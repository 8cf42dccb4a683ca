"""Where a model's files are, from the source that its manifest names."""

from pathlib import Path

from paceline_core.errors import InvalidInput
from paceline_workers import demo
from paceline_workers.config import WorkerConfig

DEMO = "builtin://demo"


def text_folder(config: WorkerConfig) -> Path:
    """The folder with tokenizer and chat template; an emulated model speaks with the demo model's.

    Raises InvalidInput for a source that a worker cannot open by itself.
    """
    return demo.FOLDER if config.engine.emulate is not None else model_folder(config.model)


def model_folder(source: str) -> Path:
    """`builtin://demo` or `file:///path`. Raises InvalidInput naming what would work."""
    if source == DEMO:
        return demo.FOLDER
    folder = Path(source.removeprefix("file://"))
    if not source.startswith("file:///"):
        raise InvalidInput("model", f"{source!r} cannot be opened here; use {DEMO} or file:///path")
    if not folder.is_dir():
        raise InvalidInput("model", f"{folder} is no folder; it must hold config.json, weights and tokenizer.json")
    return folder
