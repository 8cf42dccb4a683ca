"""Steps on a device give the tokens of `transformers` and of the CPU backend, however they are cut and launched."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.engine import reference
from tests.engine.beam_reference import theirs
from tests.engine.driver import Driver, load
from tests.engine.gpu_bench import KERNELS, GpuBench, bench
from tests.engine.gpu_lines import Lines
from tests.engine.gpu_references import REFERENCES
from tests.engine.greedy import Tally, serve
from tests.engine.reference import VOCAB, Masked, Reference
from tests.engine.reference_scheduler import beams, request
from torch.nn.functional import normalize

from paceline_kernels.paging import Sequences
from paceline_workers import demo
from paceline_workers.engine.backends.base import Backend
from paceline_workers.engine.backends.cpu.backend import CpuBackend
from paceline_workers.engine.backends.gpu.decoder import Kernels
from paceline_workers.engine.kv_cache.attention_window import AttentionWindow
from paceline_workers.engine.kv_cache.offload import Copy, CopyKind
from paceline_workers.engine.scheduling import Chunk, Request, StepPlan
from paceline_workers.engine.scheduling.request import RequestStatus
from paceline_workers.engine.scheduling.search import Search
from paceline_workers.messages import Sampling

pytestmark = pytest.mark.kernels
Pair = tuple[Reference, GpuBench]
MODELS = ["llama-one-kv-head-bias", "dynamic-rope", "qwen2-window-from-layer-1", "qwen3-window-by-layer-types"]
AHEAD = pytest.mark.parametrize("ahead", [False, True], ids=["at once", "one step late"])
ROOM: dict[str, Any] = {"step_tokens": 96, "max_seqs": 6, "kv_pages": 60, "host_bytes": 1 << 20}


def prompts(*lengths: int) -> dict[str, list[int]]:
    chance = random.Random(7)
    return {f"r{place}": [chance.randrange(VOCAB) for _ in range(size)] for place, size in enumerate(lengths)}


@pytest.fixture(scope="module", params=MODELS)
def each(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    expected = reference.write(tmp_path_factory.mktemp(request.param), request.param)
    return expected, bench(expected.folder, **ROOM)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return reference.write(tmp_path_factory.mktemp("llama"), "llama", seed=3)


@pytest.fixture(scope="module")
def pair(folder: Reference) -> Pair:
    return folder, bench(folder.folder, **ROOM)


@pytest.fixture(scope="module")
def cpu(folder: Reference) -> CpuBackend:
    return load(folder.folder, **ROOM)


@AHEAD
@pytest.mark.parametrize("step_tokens", [17, 96])
def test_greedy_tokens_are_equal_in_any_mix_and_any_chunk_size(each: Pair, step_tokens: int, ahead: bool) -> None:
    asked, tally = prompts(1, 15, 16, 17, 70), Tally()
    run = Driver(each[1], step_tokens=step_tokens, ahead=ahead)
    serve(run, asked, 8)
    tally.check_all(each[0], run, asked, 8)
    assert tally.excluded <= 1


def test_prefix_hits_change_no_token(pair: Pair) -> None:
    shared, *tails = prompts(70, 3, 20).values()
    run, tally = Driver(pair[1]), Tally()
    asked = {"first": shared, "again": shared, **{f"t{len(tail)}": shared + tail for tail in tails}}
    for name, prompt in asked.items():
        serve(run, {name: prompt}, 6)
    assert run.core.counters.hit_tokens >= 3 * 64
    tally.check_all(pair[0], run, asked, 6)


@AHEAD
@pytest.mark.parametrize("swap", [False, True])
def test_preemption_changes_no_token(pair: Pair, swap: bool, ahead: bool) -> None:
    asked, tally = prompts(30, 31, 47, 5), Tally()
    run = Driver(pair[1], pages=8, max_model_len=110, ahead=ahead)
    run.core.memory.offload.prefill_seconds *= swap
    serve(run, asked, 30)
    assert run.core.counters.preemptions > 0
    assert (run.core.memory.offload.restored_tokens > 0) is swap
    tally.check_all(pair[0], run, asked, 30)


@AHEAD
def test_a_window_with_sinks_shows_what_its_mask_shows(tmp_path: Path, ahead: bool) -> None:
    plain, tally = reference.write(tmp_path, "llama", seed=2), Tally()
    run = Driver(bench(plain.folder, attention_window=32, sink_tokens=5, **ROOM), ahead=ahead, pages=12, step_tokens=40)
    asked = prompts(3, 40, 90)
    serve(run, asked, 60)
    tally.check_all(Masked(plain.folder, plain.model, AttentionWindow(32, 5)), run, asked, 60)
    assert run.core.memory.pool.held == 0


def drawn(backend: GpuBench | CpuBackend, asked: dict[str, list[int]], ahead: bool) -> tuple[Driver, list[list[int]]]:
    """One request of each way to choose a token."""
    ways = [
        Sampling(temperature=0.9, top_p=0.9, top_k=50, seed=1),
        Sampling(temperature=1.3, min_p=0.02, seed=2, logprobs=2),
        Sampling(temperature=0.8, repetition=1.3, frequency=0.4, presence=0.2, seed=3),
        Sampling(temperature=0.0, bias={7: 3.0, 9: -50.0}, frequency=1.0, logprobs=0),
    ]
    run = Driver(backend, pages=9, max_model_len=120, ahead=ahead)
    for (name, prompt), way in zip(asked.items(), ways, strict=True):
        entry = run.submit(name, prompt, 24, way)
        entry.stop_ids, entry.min_tokens = frozenset(range(0, VOCAB, 9)), 10
    run.drain()
    return run, [run.text(name) for name in asked]


@AHEAD
def test_the_device_draws_what_the_host_draws(pair: Pair, cpu: CpuBackend, ahead: bool) -> None:
    asked = prompts(30, 31, 47, 5)
    host, expected = drawn(cpu, asked, False)
    device, texts = drawn(pair[1], asked, ahead)
    assert texts == expected
    assert device.core.counters.preemptions > 0
    told, wanted = (
        [entry for event in run.events if event.id == "r1" for entry in event.logprobs] for run in (device, host)
    )
    assert [[token for token, _ in best] for _, best in told] == [[token for token, _ in best] for _, best in wanted]
    assert [chosen for chosen, _ in told] == pytest.approx([chosen for chosen, _ in wanted], abs=1e-4)


@AHEAD
def test_rows_of_the_host_and_of_the_device_share_steps(pair: Pair, ahead: bool) -> None:
    """A beam search, an embedding and more biases than there is room for, beside a request that the device draws."""
    expected, backend = pair
    asked, tally = prompts(31, 20, 12, 33), Tally()
    search = Search(3, 9, frozenset(range(0, VOCAB, 5)))
    run = Driver(backend, ahead=ahead)
    assert run.core.submit(beams("b0", asked["r0"], search, ["b0", "b1", "b2"])) is None
    run.submit("vector", asked["r1"], 1).embed = True
    run.submit("biased", asked["r2"], 12, Sampling(temperature=0.0, bias=dict.fromkeys(range(2000), 1.0)))
    run.submit("plain", asked["r3"], 12)
    run.drain()
    assert [run.text(f"b{place}") for place in range(3)] == [text for text, _ in theirs(expected, asked["r0"], search)]
    tally.check(expected, asked["r2"], run.text("biased"))
    tally.check(expected, asked["r3"], run.text("plain"))
    (vector,) = [event.vector for event in run.events if event.vector]
    states = expected.model.model(torch.tensor([asked["r1"]])).last_hidden_state[0, -1]
    torch.testing.assert_close(torch.frombuffer(bytearray(vector), dtype=torch.float32), normalize(states, dim=-1))


@AHEAD
def test_a_grammar_is_followed_though_its_tokens_are_drawn_by_the_host(ahead: bool) -> None:
    room = {**ROOM, "page_tokens": 64, "max_model_len": 256}
    device = bench(demo.FOLDER, **room)
    backends: tuple[Backend, ...] = (load(demo.FOLDER, **room), device)
    texts = []
    for each, late in zip(backends, (False, ahead), strict=True):
        run = Driver(each, ahead=late)
        run.submit("free", [5, 6, 7], 12, Sampling(temperature=0.8, seed=1))
        run.submit("bound", [8, 9], 12, Sampling(temperature=0.8, seed=2, grammar="regex:[a-d ]{9}"))
        run.drain()
        texts.append((run.text("free"), run.text("bound")))
    assert texts[0] == texts[1]
    assert len(texts[0][1]) > 2
    assert device.sampler.retained == 0


def test_who_has_ended_sees_nothing_in_the_step_that_was_launched_meanwhile(folder: Reference) -> None:
    """One request ends with its second token, which the host learns a step late; the other one goes on."""
    seen: list[list[int]] = []

    def noted(query: Any, pages: Any, sequences: Sequences, *args: Any, **named: Any) -> Any:
        seen.append(sequences.lengths.tolist())
        return KERNELS.paged_decode(query, pages, sequences, *args, **named)

    asked = prompts(20, 31)
    run = Driver(bench(folder.folder, kernels=replace(KERNELS, paged_decode=noted), **ROOM), ahead=True)
    serve(run, asked, 5)
    text, layers = run.text("r1"), 2
    run.submit("ends", asked["r1"], 5).stop_ids = frozenset(text[1:2])
    run.submit("goes on", asked["r0"], 5)
    seen.clear()
    run.drain()
    assert (run.text("ends"), run.text("goes on")) == (text[:2], run.text("r0"))
    assert text[0] != text[1]
    assert seen[::layers] == [[21, 32], [22, 0], [23], [24]]


def test_recorded_steps_give_the_same_tokens(folder: Reference) -> None:
    backend, progress = bench(folder.folder, **ROOM), []
    backend.runner.warm(lambda: progress.append(1))
    assert len(progress) >= 4
    asked, tally = prompts(20, 33, 5), Tally()
    run = Driver(backend, ahead=True)
    serve(run, asked, 10)
    tally.check_all(folder, run, asked, 10)


def test_logits_that_are_no_numbers_fail_their_own_request_alone(folder: Reference) -> None:
    backend = bench(folder.folder, **ROOM)
    asked = prompts(20, 33)
    run = Driver(backend, ahead=True, cache=False)
    serve(run, asked, 4)
    run.submit("bad", asked["r0"], 6)
    run.submit("good", asked["r1"], 6)
    run.step()
    backend.cache.data[:, _pages(run, "bad")] = torch.nan
    run.drain()
    ends = {event.id: event for event in run.events if event.finish}
    assert "nan" in ends["bad"].error
    assert run.text("good")[:4] == run.text("r1")


def failing_where(armed: list[int]) -> Kernels:
    """Each launch takes a number out of `armed`, if there is one, and fails where it is not 0."""

    def silu_mul(*args: Any, **named: Any) -> Any:
        if armed.pop() if armed else 0:
            raise RuntimeError("injected")
        return KERNELS.silu_mul(*args, **named)

    return replace(KERNELS, silu_mul=silu_mul)


def test_a_step_that_cannot_be_begun_costs_its_own_requests_and_not_the_one_in_flight(folder: Reference) -> None:
    armed: list[int] = []
    asked, tally = prompts(20, 33), Tally()
    run = Driver(bench(folder.folder, kernels=failing_where(armed), **ROOM), ahead=True)
    run.submit("first", asked["r0"], 6)
    run.step()
    run.submit("bad", asked["r1"], 6)
    plan = run.core.step(0.0)
    armed.append(1)
    with pytest.raises(RuntimeError, match="injected"):
        run.backend.launch(plan, 0.0)
    run.collect()
    run.core.fail(plan, "injected", 0.0)
    serve(run, asked, 6)
    tally.check_all(folder, run, asked, 6)
    assert run.text("first") == run.text("r0")[:1]


def test_a_step_that_cannot_be_begun_takes_no_place_for_results_from_the_one_in_flight(folder: Reference) -> None:
    """Two more steps behind it, while the first one's results are still to be read."""
    armed: list[int] = []
    asked, run = prompts(20, 33, 41), Driver(bench(folder.folder, kernels=failing_where(armed), **ROOM))
    serve(run, asked, 1)
    first, bad, *more = (
        StepPlan((Chunk(paged(prompt), 0, len(prompt), True),)) for prompt in (*asked.values(), [1, 2])
    )
    run.backend.launch(first, 0.0)
    armed.append(1)
    with pytest.raises(RuntimeError, match="injected"):
        run.backend.launch(bad, 0.0)
    run.backend.launch(more[0], 0.0)
    assert drawn_by(run) == run.text("r0")
    run.backend.launch(more[1], 0.0)
    assert drawn_by(run) == run.text("r2")


def paged(prompt: list[int]) -> Request:
    """A running request whose pages are the first ones."""
    entry = request("by hand", prompt, 1)
    entry.state, entry.sampling, entry.pages = RequestStatus.RUNNING, Sampling(temperature=0.0), list(range(3))
    return entry


def drawn_by(run: Driver) -> list[int]:
    return [sample.token for sample in run.backend.collect().samples]


def test_a_step_that_waited_for_its_token_and_cannot_begin_then_leaves_the_one_before_it_its_tokens(
    folder: Reference,
) -> None:
    armed: list[int] = []

    def failing(*args: Any, **named: Any) -> Any:
        if armed:
            raise RuntimeError("injected")
        return KERNELS.silu_mul(*args, **named)

    run = Driver(bench(folder.folder, kernels=replace(KERNELS, silu_mul=failing), **ROOM), ahead=True)
    run.submit("biased", prompts(20)["r0"], 6, Sampling(temperature=0.0, bias=dict.fromkeys(range(2000), 1.0)))
    first = run.core.step(0.0)
    run.backend.launch(first, 0.0)
    second = run.core.step(0.0)
    run.backend.launch(second, 0.0)
    armed.append(1)
    assert len(run.backend.collect().samples) == 1
    with pytest.raises(RuntimeError, match="injected"):
        run.backend.collect()


@pytest.mark.parametrize(("pages", "waits"), [([5], True), ([6], False)])
def test_a_step_begins_when_the_pages_that_it_sees_are_there(folder: Reference, pages: list[int], waits: bool) -> None:
    lines = Lines()
    backend = bench(folder.folder, kernels=REFERENCES, device=lines, **ROOM)
    entry = request("a", [1, 2, 3])
    entry.pages = pages
    backend.launch(StepPlan((Chunk(entry, 0, 3, True),), copies=(Copy(CopyKind.IN, 0, 5),)), 0.0)
    begun = lines.log.index("back waits for compute1")
    assert lines.log[begun:] == ["back waits for compute1", *["compute waits for back3"] * waits]
    backend.collect()
    assert lines.log[-1].startswith("host waits for compute")


def test_a_step_with_long_chunks_tells_by_its_layers_that_it_gets_on_and_others_are_over_soon(
    folder: Reference,
) -> None:
    lines = Lines()
    backend = bench(folder.folder, kernels=REFERENCES, device=lines, **ROOM)
    entry = request("a", [1, 2, 3])
    entry.pages = [0]
    told = []
    for start, count in ((0, 3), (2, 1)):
        backend.launch(StepPlan((Chunk(entry, start, count, True),)), 0.0)
        begin = len(lines.log)
        backend.collect(lambda: lines.log.append("alive"))
        told.append([line.rstrip("0123456789") for line in lines.log[begin:]])
    assert told == [["host waits for compute", "alive", "host waits for compute"], ["host waits for compute"]]


def _pages(run: Driver, name: str) -> list[int]:
    found: Request = next(entry for entry in run.core.running if entry.id == name)
    return found.pages
