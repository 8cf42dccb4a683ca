"""Lengths that are learnt, the peak to come, and who is preempted when it was forecast wrongly."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.reference_scheduler import PAGE, PROMPT, Shadow, request, scheduler

from paceline_core.registry.enums import RequestClass
from paceline_core.wire import StepTime
from paceline_workers.engine.kv_cache.manager import KVCacheManager
from paceline_workers.engine.scheduling.admission import MIN_SAMPLES, WINDOW, Forecast, Lengths, peak
from paceline_workers.engine.scheduling.preemption import COOLDOWN_STEPS, VictimCandidate, cheapest, cooled_down


def known(*lengths: int) -> Lengths:
    found = Lengths()
    for length in lengths:
        found.add(length)
    return found


def test_before_enough_have_ended_a_request_may_use_its_whole_limit() -> None:
    assert known(*[3] * (MIN_SAMPLES - 1)).remaining(0, 500) == 500
    assert known(*[3] * MIN_SAMPLES).remaining(0, 500) == 3


def test_a_request_is_expected_to_end_as_the_longer_ones_did() -> None:
    lengths = known(*range(1, 101))
    assert lengths.remaining(0, 500) == 81
    assert lengths.remaining(50, 500) == 41
    assert lengths.remaining(50, 7) == 7
    assert lengths.remaining(200, 500) == 200


def test_only_the_last_ones_count() -> None:
    assert known(*[900] * WINDOW, *[4] * WINDOW).remaining(0, 5000) == 4


def test_classes_learn_apart() -> None:
    forecast = Forecast(1000)
    for _ in range(MIN_SAMPLES):
        done = request("done", PROMPT)
        done.tokens += [1] * 5
        forecast.observe(done)
    assert forecast.remaining(request("a", PROMPT, 400)) == 5
    assert forecast.remaining(request("b", PROMPT, 400, cls=RequestClass.BATCH)) == 400
    assert forecast.remaining(request("c", PROMPT, 4000, cls=RequestClass.BATCH)) == 1000 - len(PROMPT)


@given(
    st.lists(st.tuples(st.integers(1, 40), st.booleans()), min_size=MIN_SAMPLES, max_size=50),
    st.lists(st.tuples(st.integers(0, 45), st.integers(1, 60)), max_size=5),
)
def test_all_that_is_left_is_the_mean_of_what_is_known(
    ended: list[tuple[int, bool]], outputs: list[tuple[int, int]]
) -> None:
    lengths = Lengths()
    for length, limited in ended:
        lengths.add(length, limited=limited)
    at_limit = sum(limited for _, limited in ended) / len(ended)
    total = 0.0
    for produced, limit in outputs:
        longer = [min(length, produced + limit) - produced for length, _ in ended if length > produced]
        mean = sum(longer) / len(longer) if longer else limit
        total += at_limit * limit + (1 - at_limit) * mean
    assert lengths.mean_remaining(outputs) == pytest.approx(total)


def test_clients_who_use_up_what_they_ask_for_are_believed() -> None:
    forecast, running = Forecast(1000), [request("a", PROMPT, 70), request("b", PROMPT, 300)]
    assert forecast.remaining_tokens(running) == 370  # nothing is known yet
    for number in range(MIN_SAMPLES):
        done = request(f"done{number}", PROMPT, 10 + number)
        done.tokens += [1] * (10 + number)
        forecast.observe(done)
    assert forecast.remaining_tokens(running) == 370
    for _ in range(WINDOW):
        done = request("done", PROMPT, 400)
        done.tokens += [1] * 20
        forecast.observe(done)
    running[0].tokens += [1] * 5
    assert forecast.remaining_tokens(running) == 15 + 20


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 9)), min_size=1, max_size=8))
def test_the_peak_is_what_counting_every_moment_finds(loads: list[tuple[int, int]]) -> None:
    moments = [
        sum(pages + time / 4 for remaining, pages in loads if remaining >= time)
        for time in range(1, max(remaining for remaining, _ in loads) + 1)
    ]
    assert peak(sorted(loads, reverse=True), 4) == pytest.approx(max(moments))


def test_a_request_whose_growth_would_not_fit_waits_although_its_prompt_would() -> None:
    run = Shadow(scheduler(10))
    run.core.submit(request("a", [1] * 4, 24))
    run.core.submit(request("b", [2] * 4, 24))
    run.step()
    assert [entry.id for entry in run.core.running] == ["a"]
    run.drain()
    assert run.core.counters.preemptions == 0


def test_requests_that_end_early_leave_room_as_soon_as_that_is_known() -> None:
    run = Shadow(scheduler(10, slots=8))
    for number in range(MIN_SAMPLES):
        run.core.submit(request(f"r{number}", [number] * 2, 2))
    run.drain()
    for number in range(4):
        run.core.submit(request(f"new{number}", [40 + number] * 4, 24, arrival=run.now))
    run.step()
    assert len(run.core.running) > 1


def test_pages_that_requests_share_are_counted_once() -> None:
    run = Shadow(scheduler(12))
    run.core.submit(request("first", PROMPT * 2, 1))
    run.drain()
    for number in range(3):
        run.core.submit(request(f"r{number}", [*PROMPT * 2, number], 4, arrival=run.now))
    run.step()
    assert len(run.core.running) == 3


# --- victims


def candidate(name: str, freed: int, lost: float, preempted: int | None = None) -> VictimCandidate:
    entry = request(name, PROMPT)
    if preempted is not None:
        entry.preemptions, entry.resumed_step = 1, preempted
    return VictimCandidate(entry, freed, lost)


def chosen(*candidates: VictimCandidate, step: int = 100) -> str:
    return cheapest(candidates, step).id


def test_the_victim_loses_least() -> None:
    assert chosen(candidate("a", 4, 1.0), candidate("b", 9, 0.5), candidate("c", 9, 3.0)) == "b"


def test_who_would_free_nothing_is_spared() -> None:
    assert chosen(candidate("a", 4, 1.0), candidate("b", 0, 0.1)) == "a"


def test_of_equals_the_last_is_the_victim() -> None:
    assert chosen(candidate("a", 4, 1.0), candidate("b", 4, 1.0)) == "b"


def test_who_has_just_come_back_is_spared() -> None:
    tired = candidate("tired", 99, 0.1, preempted=100 - COOLDOWN_STEPS + 1)
    assert chosen(candidate("a", 1, 1.0), tired) == "a"
    assert chosen(tired, candidate("b", 1, 1.0, preempted=99)) == "b"
    assert cooled_down(tired.request, 101)


def test_the_oldest_running_request_is_never_preempted_for_want_of_pages() -> None:
    run = Shadow(scheduler(9, slots=4, hopeful=True))
    entries = [request(f"r{number}", [number] * (3 - number % 3), 16, arrival=float(number)) for number in range(4)]
    for entry in entries:
        run.core.submit(entry)
    run.now = 9.0
    run.drain()
    assert run.core.counters.preemptions > 0
    assert entries[0].preemptions == 0


@pytest.mark.parametrize(("copy", "least"), [(None, "few"), (0.1, "full"), (9.0, "few")])
def test_what_host_memory_would_bring_back_costs_the_way_back(copy: float | None, least: str) -> None:
    """Of four full pages one token is lost, of one and three tokens four; a page takes 4 s to compute."""
    memory = KVCacheManager(9, PAGE, host_pages=0 if copy is None else 9, copy_seconds=copy or 0.0)
    memory.offload.prefill_seconds = 1.0
    entries = [request("full", [1] * 17), request("few", [2] * 7)]
    for entry in entries:
        memory.place(entry)
        memory.publish(entry, 0, entry.wanted)
        entry.computed = entry.wanted
    model = StepTime(base=0.0, prefill=1.0)
    assert cheapest([VictimCandidate.of(entry, model, memory) for entry in entries], 100).id == least


def test_tokens_computed_again_are_counted() -> None:
    run = Shadow(scheduler(8, hopeful=True, prefix_cache=False))
    for number in range(3):
        run.core.submit(request(f"r{number}", [number] * 5, 14, arrival=float(number)))
    run.now = 9.0
    computed = 0
    while run.core.running or len(run.core.waiting):
        computed += sum(chunk.count for chunk in run.step().chunks)
    assert run.core.counters.recomputed_tokens == computed - 3 * (5 + 13) > 0
