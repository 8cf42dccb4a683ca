"""Which workers go: what the cluster takes first anyway, then the least busy; and which come back."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.autoscaler.talkers import load_report

from paceline_autoscaler.output.victims import PoolWorker, RetirePlan, choose_victims, plan_retirement, remaining_s
from paceline_core.registry.enums import RequestClass
from paceline_core.wire import KVLoad, LoadReport, StepTime

STEP = StepTime(base=0.02, prefill=1e-4, sequence=1e-4, kv=1e-7)
KV = KVLoad(page_tokens=16, total=1000, free=1000)


def report(tokens: int = 0, queued: int = 0, *, retired: bool = False, cached: int = 0) -> LoadReport:
    kv = KV.model_copy(update={"free": 1000 - cached, "cached": cached})
    waiting = {RequestClass.INTERACTIVE: queued}
    return load_report(remaining_tokens=tokens, queued_tokens=waiting, retired=retired, kv=kv, step_time=STEP)


def busy(name: str, tokens: int = 0, queued: int = 0, cached: int = 0) -> PoolWorker:
    return PoolWorker(name, "r", True, report(tokens, queued, cached=cached))


def retired(name: str, tokens: int = 0) -> PoolWorker:
    return PoolWorker(name, "r", False, report(tokens, retired=True))


def starting(name: str) -> PoolWorker:
    return PoolWorker(name, "r", False)


def silent(name: str) -> PoolWorker:
    return PoolWorker(name, "r", True)


LOADS = st.one_of(
    st.none(),
    st.builds(report, st.integers(0, 5000), st.integers(0, 9000), retired=st.booleans(), cached=st.integers(0, 9)),
)
WORKERS = st.lists(st.tuples(st.booleans(), LOADS), max_size=9).map(
    lambda rows: [PoolWorker(f"w{number}", "r", *row) for number, row in enumerate(rows)]
)


def test_the_least_busy_worker_goes() -> None:
    assert choose_victims([busy("a", 900), busy("b", 20), busy("c", 400)], 1) == ("b",)


def test_queued_prompts_are_work_too() -> None:
    assert choose_victims([busy("a", 100, queued=50_000), busy("b", 500)], 1) == ("b",)


def test_an_output_token_costs_its_part_of_a_full_step_and_its_reads() -> None:
    held = KV.model_copy(update={"free": 400, "cached": 100})
    load = report(10, 1000).model_copy(update={"slots": 64, "running": 4, "kv": held})
    assert remaining_s(load) == 1000 * 1e-4 + 10 * (0.02 / 64 + 1e-4 + 1e-7 * 500 * 16 / 4)


def test_among_equals_the_coldest_goes() -> None:
    assert choose_victims([busy("a", 9, cached=70), busy("b", 9, cached=30), busy("c", 9, cached=50)], 1) == ("b",)


def test_the_order_is_starting_retired_least_busy_silent() -> None:
    workers = [silent("a"), busy("b", 1), retired("c", 9000), starting("d")]
    assert choose_victims(workers, 4) == ("d", "c", "b", "a")


def test_a_scale_down_retires_only_what_the_cluster_would_not_take_first() -> None:
    workers = [busy("a", 5), busy("b", 3), starting("c")]
    assert plan_retirement(workers, 2, lowered=True) == RetirePlan()
    assert plan_retirement(workers, 1, lowered=True) == RetirePlan(retire=("b",))


def test_an_absent_replica_is_the_first_to_go() -> None:
    assert plan_retirement([busy("a"), busy("b")], 2, lowered=True) == RetirePlan()


def test_a_silent_worker_is_not_asked() -> None:
    assert plan_retirement([silent("a")], 0, lowered=True) == RetirePlan()


def test_once_ordered_nobody_else_is_retired_and_the_retired_stay_so() -> None:
    workers = [busy("a"), retired("b", 99)]
    assert plan_retirement(workers, 1, lowered=False) == RetirePlan(retire=("b",))
    assert plan_retirement([busy("a"), busy("b")], 1, lowered=False) == RetirePlan()


def test_who_is_needed_again_comes_back() -> None:
    workers = [busy("a"), retired("b", 99), retired("c", 7)]
    assert plan_retirement(workers, 2, lowered=False) == RetirePlan(retire=("c",), unretire=("b",))
    assert plan_retirement(workers, 5, lowered=False) == RetirePlan(unretire=("b", "c"))


def test_during_a_rollout_the_cluster_chooses() -> None:
    workers = [busy("a"), replace(busy("b"), revision="new"), retired("c")]
    assert plan_retirement(workers, 1, lowered=True) == RetirePlan(unretire=("c",))


@given(WORKERS, st.integers(-1, 10), st.booleans())
def test_no_plan_retires_more_than_are_too_many(workers: list[PoolWorker], replicas: int, lowered: bool) -> None:
    plan = plan_retirement(workers, replicas, lowered=lowered)
    by_name = {worker.name: worker for worker in workers}
    assert len(plan.retire) <= max(len(workers) - replicas, 0)
    assert set(plan.retire).isdisjoint(plan.unretire)
    assert all(by_name[name].retired for name in plan.unretire)
    assert all(by_name[name].report is not None and not by_name[name].starting for name in plan.retire)
    assert {worker.name for worker in workers if worker.retired} <= {*plan.retire, *plan.unretire}
    assert lowered or all(by_name[name].retired for name in plan.retire)


@given(WORKERS, st.integers(0, 9))
def test_nobody_who_stays_goes_before_a_victim(workers: list[PoolWorker], count: int) -> None:
    victims = choose_victims(workers, count)
    assert len(victims) == min(count, len(workers))
    assert victims == choose_victims(workers[::-1], count)

    def place(worker: PoolWorker) -> tuple[bool, bool, bool, float]:
        work = 0.0 if worker.report is None else remaining_s(worker.report)
        return not worker.starting, not worker.retired, worker.report is None, work

    gone = [place(worker) for worker in workers if worker.name in victims]
    stay = [place(worker) for worker in workers if worker.name not in victims]
    assert not gone or not stay or max(gone) <= min(stay)


@given(WORKERS, st.integers(0, 9))
def test_a_plan_that_is_carried_out_stays_as_it_is(workers: list[PoolWorker], replicas: int) -> None:
    """Nobody is retired and called back in turns."""
    plan = plan_retirement(workers, replicas, lowered=True)

    def after(worker: PoolWorker) -> PoolWorker:
        if worker.report is None:
            return worker
        is_retired = worker.name in plan.retire or (worker.retired and worker.name not in plan.unretire)
        ready = worker.ready or worker.name in plan.unretire
        return replace(worker, ready=ready, report=worker.report.model_copy(update={"retired": is_retired}))

    again = plan_retirement([after(worker) for worker in workers], replicas, lowered=True)
    assert set(again.retire) == set(plan.retire)
    assert again.unretire == ()
