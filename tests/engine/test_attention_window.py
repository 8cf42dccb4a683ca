"""A window with sinks: the tokens of full attention under the same mask, in a bounded number of pages."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.engine import reference
from tests.engine.driver import Driver, load
from tests.engine.greedy import OUR_ERROR, Tally, serve
from tests.engine.reference import MODELS, VOCAB, Masked
from tests.engine.reference_scheduler import Shadow, request, scheduler

from paceline_core.errors import InvalidInput
from paceline_workers.config import EngineConfig
from paceline_workers.engine import sizing
from paceline_workers.engine.backends.cpu.backend import CpuBackend
from paceline_workers.engine.kv_cache.attention_window import ALL, AttentionWindow, widest
from paceline_workers.engine.scheduling import Chunk, StepPlan

pytestmark = pytest.mark.models

SIGHT = AttentionWindow(32, 5)
PAGE = 16
LENGTH = 10 * 32
Pair = tuple[Masked, CpuBackend]


def opened(name: str, folders: pytest.TempPathFactory) -> Pair:
    plain = reference.write(folders.mktemp(name), name, seed=2)
    backend = load(plain.folder, attention_window=32, sink_tokens=5, kv_pages=40, host_bytes=1 << 20)
    return Masked(plain.folder, plain.model, SIGHT), backend


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return opened("llama-untied-odd-heads", tmp_path_factory)


@pytest.fixture(scope="module", params=["llama-untied-odd-heads", "qwen3"])
def each(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return opened(request.param, tmp_path_factory)


def prompt(length: int, salt: int = 0) -> list[int]:
    return [(place * place * 7 + salt) % (VOCAB - 1) for place in range(length)]


class Watched(Driver):
    """Notes the most pages that were held at once, and checks the books after every step."""

    max_pages = 0

    def step(self) -> None:
        super().step()
        self.core.memory.check([entry.pages for entry in self.core.running])
        self.max_pages = max(self.max_pages, self.core.memory.pool.held)


@pytest.mark.parametrize("cuts", [(LENGTH,), (250, *(1,) * 70), (100, 17, 1, 1, 31, 33, 137)])
def test_logits_equal_those_under_the_mask_up_to_ten_windows(each: Pair, cuts: Sequence[int]) -> None:
    expected, backend = each
    exact, entry = expected.exact(prompt(LENGTH)), request("a", prompt(LENGTH))
    entry.pages = list(range(20, 0, -1))
    start = 0
    for count in cuts:
        plan = StepPlan((Chunk(entry, start, count, True),))
        logits = backend.decoder(backend.decoder.lay_out(plan, PAGE), backend.cache)[0]
        start += count
        assert (logits - exact[start - 1]).abs().max() <= OUR_ERROR * expected.error, start


@pytest.mark.parametrize(("step_tokens", "ahead"), [(24, False), (512, True)])
def test_texts_of_ten_windows_are_equal_and_hold_few_pages(pair: Pair, step_tokens: int, ahead: bool) -> None:
    asked, tally = {f"r{length}": prompt(length, length) for length in (3, 40, 90)}, Tally()
    run = Watched(pair[1], step_tokens=step_tokens, ahead=ahead)
    serve(run, asked, LENGTH - 40)
    tally.check_all(pair[0], run, asked, LENGTH - 40)
    assert run.max_pages <= 3 * 6
    assert run.core.memory.pool.held == run.core.counters.preemptions == 0
    assert tally.excluded <= 2


def test_a_prompt_of_ten_windows_needs_no_more_pages_than_a_window(pair: Pair) -> None:
    run, tally = Watched(pair[1], pages=6, step_tokens=64), Tally()
    asked = {"long": prompt(LENGTH), "other": prompt(LENGTH, 3)}
    serve(run, asked, 20)
    tally.check_all(pair[0], run, asked, 20)
    assert run.max_pages <= 6


def test_without_a_prefix_cache_pages_are_given_back_as_well(pair: Pair) -> None:
    run, tally = Watched(pair[1], pages=8, step_tokens=32, cache=False), Tally()
    serve(run, {"a": prompt(60)}, LENGTH - 60)
    tally.check_all(pair[0], run, {"a": prompt(60)}, LENGTH - 60)
    assert run.core.memory.pool.cached == 0


@pytest.mark.parametrize("swap", [True, False])
def test_what_was_dropped_is_computed_again_alike_after_a_preemption(pair: Pair, swap: bool) -> None:
    asked, tally = {f"r{length}": prompt(length, length) for length in (30, 47, 81, 12)}, Tally()
    run = Watched(pair[1], pages=11, step_tokens=40, ahead=swap)
    run.core.memory.offload.prefill_seconds *= swap
    serve(run, asked, 120)
    assert run.core.counters.preemptions > 0
    assert (run.core.counters.recomputed_tokens > 64) is not swap
    tally.check_all(pair[0], run, asked, 120)


def test_a_prefix_is_hit_though_its_middle_was_evicted(pair: Pair) -> None:
    run, tally = Watched(pair[1], pages=12, step_tokens=64), Tally()
    run.core.memory.offload.prefill_seconds = 0.0
    serve(run, {"first": prompt(200)}, 4)
    held = run.core.memory.pool.evicted
    serve(run, {"again": prompt(200)}, 4)
    assert held > 0
    assert run.core.counters.hit_tokens == 192
    tally.check_all(pair[0], run, {"first": prompt(200), "again": prompt(200)}, 4)


@pytest.mark.parametrize("length", [150, 161])
def test_a_second_choice_shares_the_window_or_computes_its_own(pair: Pair, length: int) -> None:
    """Of 161 tokens the last page is in no attention_window of the next token, but in that of the last one."""
    run, tally = Watched(pair[1]), Tally()
    for number in range(2):
        run.submit(f"c{number}", prompt(length), 30, group="c")
    run.drain()
    for number in range(2):
        tally.check(pair[0], prompt(length), run.text(f"c{number}"))
    assert run.core.memory.pool.held == 0


@pytest.mark.parametrize("name", ["mistral-window", "qwen3-window-by-layer-types"])
def test_a_model_with_windows_of_its_own_keeps_the_narrower_one_and_shows_it_no_sink(tmp_path: Path, name: str) -> None:
    plain, tally = reference.write(tmp_path, name), Tally()
    window = MODELS[name]["sliding_window"]
    backend = load(plain.folder, attention_window=40, sink_tokens=3, kv_pages=40)
    run = Watched(backend)
    run.submit("a", prompt(70), 150)
    run.drain()
    attention_windows = (
        [AttentionWindow(window), AttentionWindow(40, 3), AttentionWindow(window)]
        if "layer" in name
        else [AttentionWindow(window)] * 2
    )
    assert backend.decoder.config.attention_windows == tuple(attention_windows)
    tally.check(Masked(plain.folder, plain.model, *attention_windows), prompt(70), run.text("a"))
    assert run.max_pages <= 7


def test_sights_are_masks_of_the_same_meaning() -> None:
    seen = reference.mask(AttentionWindow(3, 1), 6)
    assert seen.int().tolist() == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [1, 1, 1, 1, 0, 0],
        [1, 0, 1, 1, 1, 0],
        [1, 0, 0, 1, 1, 1],
    ]
    assert torch.equal(reference.mask(ALL, 3), torch.ones(3, 3).tril().bool())


def test_layers_together_need_what_the_widest_of_them_needs() -> None:
    assert widest([AttentionWindow(8), AttentionWindow(32, 4)]) == AttentionWindow(32, 4)
    assert widest([AttentionWindow(8), ALL]) == ALL
    assert AttentionWindow(8).narrowed(16, 4) == AttentionWindow(8)
    assert ALL.narrowed(16, 4) == AttentionWindow(16, 4)


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        ({"sink_tokens": 4}, "engine.sink_tokens: needs an attention_window"),
        ({"attention_window": 32, "page_tokens": 64}, "engine.attention_window: 32 tokens are less than a page of 64"),
        ({"attention_window": 64, "sink_tokens": 64}, "engine.sink_tokens: 64 must be below"),
    ],
)
def test_a_window_that_cannot_be_meant_is_refused(engine: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        sizing.attention_windows(EngineConfig.model_validate(engine), (ALL,))


def test_a_pool_that_holds_a_window_serves_the_whole_context() -> None:
    engine = EngineConfig(page_tokens=16)
    lengths = [
        sizing.limits(engine, context=5000, vocab_size=9, pages=pages, attention_window=attention_window).max_model_len
        for pages, attention_window in ((7, AttentionWindow(64, 4)), (6, AttentionWindow(64, 4)), (7, ALL))
    ]
    assert lengths == [5000, 96, 112]


@pytest.mark.parametrize("pages", [3, 4, 5, 9])
def test_alone_it_gets_on_with_the_fewest_pages_while_a_step_is_in_flight(pages: int) -> None:
    run = Shadow(scheduler(pages, budget=64, attention_window=AttentionWindow(4)), ahead=True)
    assert run.core.submit(request("a", [place % 50 for place in range(120)], 20)) is None
    run.drain()
    assert (run.ends(), run.core.counters.preemptions) == ({"a": "length"}, 0)


def test_a_long_text_counts_with_its_window_once_its_prompt_is_through() -> None:
    run = Shadow(scheduler(24, slots=20, budget=64, attention_window=AttentionWindow(4)))
    for number in range(6):
        assert run.core.submit(request(f"r{number}", [number] * 20, 400)) is None
    together = 0
    while run.core.running or len(run.core.waiting):
        run.step()
        together = max(together, len(run.core.running))
    assert (together, run.core.counters.preemptions) == (6, 0)
