"""From a folder to a backend on a CPU: the size of its pool, stages, and an end when nobody waits any more."""

from pathlib import Path

import pytest
from tests.engine import reference
from tests.engine.driver import load
from tests.engine.manual import ManualTimer

from paceline_workers.config import EngineConfig
from paceline_workers.engine.backends.cpu.backend import CpuBackend
from paceline_workers.engine.channel import PeerGone


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reference.write(tmp_path_factory.mktemp("llama"), "llama").folder


def test_the_pool_is_as_large_as_configured(folder: Path) -> None:
    assert load(folder, kv_pages=40).facts.pages == 40
    page = load(folder).facts.page_bytes
    assert page == 16 * 2 * 2 * 2 * 16 * 4
    assert load(folder, kv_bytes=50 * page).facts.pages == 50


def test_by_default_the_pool_holds_all_slots_at_full_length(folder: Path) -> None:
    facts = load(folder, max_seqs=3, max_model_len=100).facts
    assert facts.pages == 3 * 7


def test_without_a_length_the_pool_bounds_it(folder: Path) -> None:
    assert load(folder, kv_pages=3).facts.limits.max_model_len == 48


def test_loading_is_told_by_stages(folder: Path) -> None:
    assert list(load(folder).facts.stages) == ["config", "load", "warm"]


def test_loading_ends_when_its_peer_does(folder: Path) -> None:
    def gone(_: float) -> None:
        raise PeerGone("gone")

    with pytest.raises(PeerGone):
        CpuBackend.load(EngineConfig(), f"file://{folder}", ManualTimer(), gone)
