"""A whole worker over the GPU's backend, its kernels in Triton's interpreter: HTTP in, kernels, the CPU's text out."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.engine.conftest import Settings
from tests.engine.process import engine
from tests.worker.processes import HTTP, LIMIT_S, WorkerProcess, worker_process

from paceline_core.errors import InvalidInput
from paceline_core.launch import to_manifest_field
from paceline_workers.config import WorkerConfig
from paceline_workers.messages import Failed

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

PLACES = [("tests.engine.interpreted",), *([None] if torch.cuda.is_available() else [])]
"""Programs: the interpreter, and on a machine with a GPU the engine itself."""
ENGINE = {"dtype": "fp32", "page_tokens": 16, "kv_pages": 4, "max_seqs": 1, "step_tokens": 16, "max_model_len": 32}
BODY: dict[str, Any] = {"model": "chat", "prompt": "What is TTFT?", "max_tokens": 5, "temperature": 0, "logprobs": 2}


def completion(worker: WorkerProcess) -> dict[str, Any]:
    """Text, the probabilities of its tokens, and use."""
    worker.ready()
    answer = HTTP.post(f"{worker.url}/v1/completions", json=BODY)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


@pytest.mark.parametrize("script", PLACES, ids=["interpreted", "cuda"][: len(PLACES)])
def test_a_worker_on_the_gpus_backend_answers_as_on_the_cpus(tmp_path: Path, script: tuple[str, ...] | None) -> None:
    found = []
    for device, program in (("cuda", script), ("cpu", None)):
        folder = tmp_path / device
        folder.mkdir()
        with worker_process(
            folder, program, watchdog_s=LIMIT_S, engine={**ENGINE, "device": device, "threads": 1}
        ) as worker:
            found.append(completion(worker))
            assert ("computing on a GPU" in worker.said()) == (device == "cuda")
    ours, theirs = found
    (mine,), (other,) = ours["choices"], theirs["choices"]
    assert mine["text"] == other["text"] != ""
    assert ours["usage"] == theirs["usage"]
    assert mine["logprobs"]["token_logprobs"] == pytest.approx(other["logprobs"]["token_logprobs"], abs=1e-3)


def test_a_gpu_that_is_asked_for_and_not_there_is_refused_with_the_manifests_field(
    settings: Settings, worker_file: Callable[[WorkerConfig], Path]
) -> None:
    with engine(worker_file(settings(device="cuda")), CUDA_VISIBLE_DEVICES="") as run:
        run.peer.until(lambda peer: peer.seen)
        (failed,) = run.peer.seen
        assert isinstance(failed, Failed)
        assert run.status() == 1
    said = to_manifest_field(f"paceline worker: {InvalidInput(failed.field, failed.message)}")
    assert said.startswith("spec.pools[].accelerator: torch finds no CUDA GPU here; run where `nvidia-smi` lists one")
