"""The engine as a real process: it starts, serves, refuses with a reason, and never outlives its peer."""

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.engine import reference
from tests.engine.conftest import Settings
from tests.engine.peer import submit
from tests.engine.process import engine

from paceline_workers import demo
from paceline_workers.config import WorkerConfig
from paceline_workers.messages import Failed, Shutdown

pytestmark = pytest.mark.real

EMULATE = {"accelerator": "h100", "model": "llama-3.1-8b", "cold_start_s": 0.0}
Write = Callable[[WorkerConfig], Path]


@pytest.fixture
def emulated(settings: Settings, worker_file: Write) -> Path:
    return worker_file(settings(emulate=EMULATE, step_tokens=2048))


def test_an_emulated_engine_serves_and_ends_with_its_peer(emulated: Path) -> None:
    with engine(emulated) as run:
        run.start()
        texts = run.peer.generate(*[submit(f"r{number}", [number + 5] * 600, 12) for number in range(4)])
        assert [len(text) for text in texts] == [12] * 4
        run.peer.until(lambda peer: peer.beats and peer.beats[-1].running == 0)
        assert run.peer.beats[-1].steps < 4 * 12
        run.peer.close()
        assert run.status() == 0


def test_an_emulated_engine_does_not_load_torch(emulated: Path) -> None:
    with engine(emulated) as run:
        run.start()
        assert "torch" not in Path(f"/proc/{run.process.pid}/maps").read_text()


def test_signals_to_the_group_do_not_end_it_but_its_peer_does(emulated: Path) -> None:
    with engine(emulated) as run:
        run.start()
        run.process.send_signal(signal.SIGINT)
        run.process.send_signal(signal.SIGTERM)
        assert len(run.peer.generate(submit("a", [7], 5))[0]) == 5
        run.peer.send(Shutdown())
        assert run.status() == 0


def test_the_end_of_its_peer_ends_it_in_the_middle_of_a_cold_start(settings: Settings, worker_file: Write) -> None:
    config = worker_file(settings(emulate={**EMULATE, "cold_start_s": 3600.0}))
    with engine(config) as run:
        run.peer.close()
        assert run.status() == 0


def test_the_end_of_its_peer_ends_it_in_a_read_that_never_comes_back(tmp_path: Path) -> None:
    config = tmp_path / "worker.yaml"
    os.mkfifo(config)
    # the pipe opens when the engine has opened it, too
    with engine(config) as run, config.open("w"):
        run.peer.close()
        assert run.status() == 1


def test_a_configuration_that_cannot_be_served_is_told_and_exits_with_1(settings: Settings, worker_file: Write) -> None:
    with engine(worker_file(settings(emulate={**EMULATE, "model": "gpt-9"}))) as run:
        run.peer.until(lambda peer: peer.seen)
        (message,) = run.peer.seen
        assert isinstance(message, Failed)
        assert message.field == "engine.emulate.model"
        assert message.message.startswith("'gpt-9' is not a known shape")
        assert run.status() == 1


def test_without_a_configuration_file_it_says_so(tmp_path: Path) -> None:
    with engine(tmp_path / "absent.yaml") as run:
        run.peer.until(lambda peer: peer.seen)
        (message,) = run.peer.seen
        assert isinstance(message, Failed)
        assert message.field.endswith("absent.yaml")
        assert message.message.startswith("cannot be read")


def test_the_demo_model_is_served_on_the_cpu_with_the_tokens_of_transformers(
    settings: Settings, worker_file: Write
) -> None:
    expected = reference.open_folder(demo.FOLDER)
    prompts = [[number, *range(10, 40)] for number in range(5, 9)]
    with engine(worker_file(settings(threads=1, page_tokens=16))) as run:
        run.start()
        asked = [submit(f"r{place}", prompt, 16, ignore_eos=True) for place, prompt in enumerate(prompts)]
        texts = run.peer.generate(*asked)
        assert texts == [expected.greedy(prompt, text) for prompt, text in zip(prompts, texts, strict=True)]
        assert run.peer.started
        assert not run.peer.started.emulated
        run.peer.send(Shutdown())
        assert run.status() == 0


def test_damaged_weights_are_told_before_anything_is_served(
    settings: Settings, worker_file: Write, tmp_path: Path
) -> None:
    folder = shutil.copytree(demo.FOLDER, tmp_path / "model")
    (folder / "model.safetensors").write_bytes(b"short")
    with engine(worker_file(settings(f"file://{folder}"))) as run:
        run.peer.until(lambda peer: peer.seen)
        (message,) = run.peer.seen
        assert isinstance(message, Failed)
        assert message.field == f"{folder}/model.safetensors"
        assert message.message.startswith("is damaged or cut short")
        assert run.status() == 1
