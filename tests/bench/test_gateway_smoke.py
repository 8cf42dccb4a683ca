"""The gateway benchmark from end to end, with a few requests: ours and Envoy on a stage, everything ended after it."""

import importlib.util
from pathlib import Path

import psutil
import pytest
from benchmarks.gateway import rivals, streamed
from benchmarks.gateway.rounds import Work, measured
from benchmarks.gateway.script import Script
from benchmarks.gateway.stage import DIRECT, OURS, stage
from benchmarks.peers import Environment

pytestmark = pytest.mark.real
WORK = Work("streamed", Script(apart=True), 40, connections=4)
BROKEN = rivals.Rival(Environment("broken", (), ""), lambda *_: ["false"])


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Peers from this environment's own packages: nothing is downloaded."""
    place = importlib.util.find_spec("envoy._bin")
    assert place is not None
    assert place.origin is not None
    for name, rival in {"envoy": rivals.RIVALS["envoy"], "broken": BROKEN}.items():
        folder = tmp_path / "paceline" / "peers" / rival.environment.name
        (folder / "bin").mkdir(parents=True)
        (folder / "packages.txt").write_text("\n".join(rival.environment.packages))
        (folder / "bin" / "envoy").symlink_to(Path(place.origin).with_name("envoy"))
        monkeypatch.setitem(rivals.RIVALS, name, rival)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.mark.usefixtures("installed")
def test_ours_and_envoy_are_measured_and_who_cannot_start_or_ends_early_is_named() -> None:
    with stage(["envoy", "broken"]) as ready:
        family = [member.pid for one in ready.contestants.values() for member in one.family()]
        samples = measured(ready, WORK, [DIRECT, *ready.contestants], 1)
        assert list(ready.failed) == ["broken"]
        ready.contestants["envoy"].end()
        rest = measured(ready, WORK, list(ready.contestants), 1)
    assert list(samples.by_name) == [DIRECT, OURS, "envoy"]
    assert samples.errors().passed
    assert [one.tally.done for (one,) in samples.by_name.values()] == [40, 40, 40]
    assert all(samples.by_name[name][0].cpu_s > 0 for name in (OURS, "envoy"))
    assert streamed.against_envoy(samples)[0].ratio
    assert list(rest.by_name) == [OURS]
    assert list(ready.failed) == ["broken", "envoy"]
    assert "has ended" in ready.failed["broken"]
    assert not [pid for pid in family if psutil.pid_exists(pid)]
