"""The load generator and a stack of real processes: started for a run, joined by a second one, gone afterwards."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from paceline_cli.bench.attach import attach, temporary_stack
from paceline_cli.bench.client import BenchTarget
from paceline_cli.bench.command import Load, Where, measure
from paceline_cli.bench.profiles import BenchOptions, ProfileName, profile_of
from paceline_cli.bench.report import parse_target
from paceline_cli.bench.trace_load import trace_profile
from paceline_cli.bench.watch import scrape
from paceline_core.clock import SystemClock
from paceline_core.errors import InvalidInput, NotFound, Unreachable
from paceline_core.kube import Listed
from paceline_simulator.replay import Replay
from paceline_simulator.traces import TraceRequest

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]

MANIFESTS = """
apiVersion: paceline.dev/v1alpha1
kind: InferenceService
metadata: {name: tiny, namespace: default}
spec:
  model: {source: "builtin://demo", servedName: tiny}
  engine: {maxModelLen: 4096, emulate: {accelerator: h100, model: llama-3.1-8b, coldStart: 0s}}
  classes: {interactive: {slo: {ttft: {p95: 1s}}}}
  pools: [{name: main, accelerator: cpu}]
"""
OPTIONS = BenchOptions(ProfileName.STEADY, rate=4, duration="3s", prompt_tokens=256, output_tokens=5)
LOAD = Load(profile_of(OPTIONS), seed=0, targets=(), limit_s=30.0)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def state(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Path]:
    file = tmp_path_factory.mktemp("stack") / "tiny.yaml"
    file.write_text(MANIFESTS)
    async with temporary_stack(file) as state:
        yield state


async def test_a_running_stack_is_joined_by_its_state_directory(state: Path) -> None:
    report = await measure(Where(None, state, None, None, None), LOAD)
    assert (report.model, report.overall.offered) == ("tiny", 12)
    assert report.overall.endings == {"ok": 12}
    assert report.overall.prompt_tokens == pytest.approx(12 * 256, rel=0.01)
    assert report.overall.output_tokens == 12 * 5
    assert [part.target for part in report.overall.promise] == ["ttft_p95"]
    seen = report.observation
    assert {sample.ready for sample in seen.replicas} == {1}
    assert seen.decisions is not None
    assert seen.decisions.different == 0
    assert seen.emulation is not None
    assert seen.emulation.steps > 0


async def test_the_users_own_targets_replace_the_services(state: Path) -> None:
    load = Load(LOAD.profile, 0, (parse_target("e2e_p99=10s"),), 30.0)
    report = await measure(Where(None, state, None, None, "default/tiny"), load)
    assert [part.target for part in report.overall.promise] == ["e2e_p99"]
    assert report.overall.endings == {"ok": 12}


async def test_a_trace_is_replayed_and_its_shared_blocks_are_found_in_the_cache(state: Path) -> None:
    trace = [TraceRequest(0.4 * number, 1500, 4, (1, 2, 100 + number)) for number in range(6)]
    profile, arrivals = trace_profile("log.jsonl", trace, Replay(), seed=0)
    before = await prefix_hits(state)
    report = await measure(Where(None, state, None, None, None), Load(profile, 0, (), 30.0, tuple(arrivals)))
    assert report.profile.name == "trace log.jsonl"
    assert report.overall.endings == {"ok": 6}
    assert report.overall.prompt_tokens == pytest.approx(6 * 1500, rel=0.02)
    assert report.overall.output_tokens == 6 * 4
    assert await prefix_hits(state) - before >= 5 * 900


async def prefix_hits(state: Path) -> float:
    """Prompt tokens that the stack's only worker has found cached so far."""
    attached = await attach(state, None, SystemClock())
    try:
        event = await anext(attached.cluster.watch_endpoints())
        assert isinstance(event, Listed)
        [[worker]] = [item.endpoints for item in event.items]
        page = await scrape(worker)
    finally:
        await attached.cluster.close()
    hits = re.findall(r"^paceline_prefix_hit_tokens_total\S* (\S+)$", page, re.MULTILINE)
    return sum(map(float, hits))


async def test_any_endpoint_can_be_measured_without_its_stack(state: Path) -> None:
    attached = await attach(state, None, SystemClock())
    await attached.cluster.close()
    report = await measure(Where(None, state, attached.record.endpoint, attached.key, "tiny"), LOAD)
    assert report.overall.endings == {"ok": 12}
    assert report.observation.replicas == ()


async def test_a_wrong_key_ends_the_run_at_its_first_request(state: Path) -> None:
    with pytest.raises(Unreachable, match="401 invalid_api_key"):
        await measure(Where(None, state, None, "pl_wrong", None), LOAD)


async def test_an_own_stack_is_gone_with_the_run(tmp_path: Path) -> None:
    file = tmp_path / "tiny.yaml"
    file.write_text(MANIFESTS)
    async with temporary_stack(file) as state:
        attached = await attach(state, None, SystemClock())
        await attached.cluster.close()
    assert not state.exists()
    with pytest.raises(NotFound):
        await attach(state, None, SystemClock())
    host, port, _ = BenchTarget(attached.record.endpoint, "", "").address
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(host, port)


async def test_manifests_with_a_fault_end_the_run(tmp_path: Path) -> None:
    file = tmp_path / "tiny.yaml"
    file.write_text(MANIFESTS.replace("servedName", "servdName"))
    with pytest.raises((Unreachable, InvalidInput)):
        async with temporary_stack(file):
            pass


async def ticks() -> AsyncIterator[None]:
    while True:
        yield
        await asyncio.sleep(0.1)


async def test_an_interrupted_run_says_so_in_a_word_and_leaves_nothing(tmp_path: Path) -> None:
    file, scratch = tmp_path / "tiny.yaml", tmp_path / "scratch"
    file.write_text(MANIFESTS)
    scratch.mkdir()
    bench = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "paceline_cli", "bench", "-f", str(file), "--duration", "300s", "--rate", "1"),
        env=os.environ | {"TMPDIR": str(scratch)},
        stderr=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(90):
            async for _ in ticks():
                if list(scratch.glob("paceline-bench-*/state/run/run.json")):
                    break
            bench.send_signal(signal.SIGTERM)
            _, said = await bench.communicate()
    finally:
        if bench.returncode is None:
            bench.kill()
            await bench.wait()
    assert bench.returncode == 130
    assert said.decode().splitlines()[-1] == "interrupted; there is no report"
    assert b"Traceback" not in said
    assert list(scratch.iterdir()) == []
