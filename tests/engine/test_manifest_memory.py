"""What a manifest says of memory and classes, in a real engine process: through the launch and its file to the deed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tests.engine.peer import Peer, submit
from tests.engine.process import engine

from paceline_core.config import parse
from paceline_core.errors import InvalidInput
from paceline_core.launch import Binding, build, to_manifest_field
from paceline_core.objects import InferenceService, resolve, validate
from paceline_core.registry.enums import RequestClass
from paceline_workers.config import EngineConfig, WorkerConfig
from paceline_workers.engine import sizing
from paceline_workers.engine.loading import memory_named
from paceline_workers.engine.page_files import file_bytes
from paceline_workers.messages import Failed, Heartbeat, Tokens

pytestmark = pytest.mark.real

EMULATE = {"accelerator": "h100", "model": "llama-3.1-8b", "coldStart": "0s"}
FEW_PAGES = {"maxSeqs": 2, "maxModelLen": 1024, "stepTokens": 512}
Write = Callable[..., Path]


@pytest.fixture
def launched(tmp_path: Path) -> Write:
    """The file of a worker that a manifest with this spec asks for; its pages go to `pages` beside it."""

    def write(**spec: Any) -> Path:
        pools = [{"name": "main", "accelerator": "cpu"}]
        document = {
            "apiVersion": "paceline.dev/v1alpha1",
            "kind": "InferenceService",
            "metadata": {"name": "chat"},
            "spec": {"model": {"source": "builtin://demo"}, "pools": pools, **spec},
        }
        found = validate(document)
        assert isinstance(found, InferenceService)
        service = resolve(found)
        binding = Binding("chat-main-1", "127.0.0.1", 0, str(tmp_path), "", str(tmp_path / "pages"), 0)
        (file,) = build(service, service.pools[0], "stable", binding).files
        Path(file.path).write_text(file.content)
        return Path(file.path)

    return write


def idle(peer: Peer) -> Heartbeat:
    """The first heartbeat after all that has been said, with nobody running."""
    before = len(peer.beats)
    peer.until(lambda peer: len(peer.beats) > before and not peer.beats[-1].running)
    return peer.beats[-1]


def pages(folder: Path) -> list[Path]:
    return [path for path in folder.glob("*.kv/*") if path.name != "lock"]


def test_an_engine_spills_to_the_disk_that_its_manifest_gives_it_and_reads_back_what_it_needs(
    launched: Write, tmp_path: Path
) -> None:
    cache = {"hostOffloadBytes": "1Mi", "diskOffloadBytes": "4Mi"}
    prompts = [[(place * 7 + salt) % 1500 + 1 for place in range(900)] for salt in range(7)]
    with engine(launched(engine={**FEW_PAGES, "kvCache": cache})) as run:
        run.start()
        texts = [run.peer.generate(submit(f"a{number}", prompt, 4)) for number, prompt in enumerate(prompts)]
        spilled = idle(run.peer)
        assert spilled.disk_pages_out > spilled.disk_pages > 0
        again = [run.peer.generate(submit(f"b{number}", prompt, 4)) for number, prompt in enumerate(reversed(prompts))]
        assert again == texts[::-1]
        assert idle(run.peer).disk_pages_in > 0
        run.peer.close()
        assert run.status() == 0
    left = pages(tmp_path / "pages")
    assert left
    assert sum(path.stat().st_blocks * 512 for path in left) <= 4 << 20


def test_too_small_a_disk_is_told_with_the_field_of_the_manifest(launched: Write) -> None:
    path = launched(engine={"kvCache": {"hostOffloadBytes": "1Gi", "diskOffloadBytes": "1Mi"}})
    settings = parse(WorkerConfig, yaml.safe_load(path.read_text()), str(path)).engine
    with pytest.raises(InvalidInput) as refused:
        sizing.disk_pages(settings, 1 << 20, file_bytes(1 << 20))
    said = to_manifest_field(f"paceline worker: {refused.value}")
    assert said.startswith("spec.engine.kvCache.diskOffloadBytes: 1048576 bytes")


def test_more_host_memory_than_there_is_is_refused_once_with_the_field_of_the_manifest(launched: Write) -> None:
    with engine(launched(engine={**FEW_PAGES, "kvCache": {"hostOffloadBytes": "63Ti"}})) as run:
        run.peer.until(lambda peer: any(isinstance(message, Failed) for message in peer.seen))
        assert run.status() == 1
        (failed,) = (message for message in run.peer.seen if isinstance(message, Failed))
    said = to_manifest_field(f"paceline worker: {InvalidInput(failed.field, failed.message)}")
    assert said.startswith("spec.engine.kvCache.hostOffloadBytes: 66060288 MiB do not fit: of ")


def test_weights_and_pages_come_before_host_memory() -> None:
    settings = EngineConfig(host_bytes=6 << 30)
    sizing.fit(settings, beside=2 << 30, free=8 << 30)
    sizing.fit(settings, beside=2 << 30, free=None)
    sizing.fit(EngineConfig(), beside=2 << 30, free=0)
    with pytest.raises(InvalidInput, match=r"6144 MiB do not fit: of 8191 MiB of free memory .* leave 6143 MiB"):
        sizing.fit(settings, beside=2 << 30, free=(8 << 30) - 1)


@pytest.mark.parametrize("field", ["engine.host_bytes", "engine.kv_pages", "engine.kv_bytes", "model"])
def test_memory_that_cannot_be_had_is_told_with_what_to_make_smaller(field: str) -> None:
    section, _, name = field.partition(".")
    with (
        pytest.raises(InvalidInput, match=r"does not fit into memory \(can't allocate memory: ") as refused,
        memory_named(EngineConfig.model_validate({name: 2} if section == "engine" else {})),
    ):
        torch.zeros(1 << 60, dtype=torch.uint8)
    assert refused.value.field == field
    with pytest.raises(RuntimeError, match="inconsistent tensor size"), memory_named(EngineConfig()):
        torch.zeros(2) @ torch.zeros(3)


ON_THE_DEVICE = "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.10 GiB"
LACKS = {
    ON_THE_DEVICE: "engine.kv_pages: does not fit into the GPU's memory (Tried to allocate 20.00 GiB)",
    "CUDA error: out of memory\nCompile with": "engine.host_bytes: does not fit into memory (out of memory)",
    "out of memory (2)": "engine.host_bytes: does not fit into memory (out of memory)",
}


@pytest.mark.parametrize(("words", "said"), LACKS.items())
def test_a_gpus_memory_and_locked_memory_of_its_host_are_told_apart(words: str, said: str) -> None:
    """As torch and the driver say it: on the device, where the host's pages are locked, and by cudaHostRegister."""
    settings = EngineConfig(host_bytes=1 << 30, kv_pages=9)
    with pytest.raises(InvalidInput) as refused, memory_named(settings):
        raise RuntimeError(words)
    assert str(refused.value) == f"{said}; make it smaller"


def test_narrow_pages_are_refused_on_cpus_with_the_field_of_the_manifest(launched: Write) -> None:
    path = launched()
    changed = yaml.safe_load(path.read_text())
    changed["engine"]["kv_dtype"] = "int8"
    path.write_text(yaml.safe_dump(changed))
    with engine(path) as run:
        run.peer.until(lambda peer: any(isinstance(message, Failed) for message in peer.seen))
        (failed,) = (message for message in run.peer.seen if isinstance(message, Failed))
    said = to_manifest_field(f"paceline worker: {InvalidInput(failed.field, failed.message)}")
    assert said == "spec.engine.kvCache.dtype: int8 is for GPUs; write bf16 or fp32 here, or leave it out"


@pytest.mark.parametrize("percent", [50, 0])
def test_less_urgent_classes_leave_the_seats_free_that_a_manifest_reserves(launched: Write, percent: int) -> None:
    config = launched(engine={"maxSeqs": 4, "emulate": EMULATE}, classes={"interactive": {"reservedPercent": percent}})
    slow = [
        submit(f"b{number}", [number + 5] * 30, 200, request_class=RequestClass.BATCH, ignore_eos=True)
        for number in range(3)
    ]
    with engine(config) as run:
        run.start()
        run.peer.generate(*slow, submit("i", [9] * 30, 20))
        spoken = [message for message in run.peer.seen if isinstance(message, Tokens)]
    ended = next(place for place, message in enumerate(spoken) if message.finish and message.id != "i")
    begun = {message.id for message in spoken[:ended]}
    assert "i" in begun
    assert len(begun - {"i"}) == (2 if percent else 3)
