"""A study's runs: judged by the service's own promise, paid after the warm-up, named by all that they depend on."""

from dataclasses import replace
from typing import Any

import pytest

from paceline_core.errors import InvalidInput
from paceline_core.objects import InferenceService
from paceline_core.objects.defaults import resolve
from paceline_core.registry.enums import RequestClass
from paceline_simulator.replay import Replay
from paceline_simulator.service_engine import simulated_pools
from paceline_simulator.study import Study
from paceline_simulator.traces import TraceRequest

TRACE = tuple(TraceRequest(0.5 * number, 2000, 20) for number in range(160))
EMULATE = {"accelerator": "h100", "model": "llama-3.1-8b", "coldStart": "5s"}
PROMISE = {"ttft": {"p95": "400ms"}, "tpot": {"p95": "100ms"}}


def study(slo: dict[str, Any] | None = None, *, least: int = 1, **fields: Any) -> Study:
    spec = {
        "model": {"source": "builtin://demo"},
        "engine": {"maxModelLen": 8192, "emulate": EMULATE},
        "classes": {"interactive": {"slo": PROMISE if slo is None else slo}},
        "pools": [{"name": "main", "accelerator": "cpu", "replicas": {"min": least, "max": 4}}],
    }
    service = InferenceService.model_validate({"metadata": {"name": "chat", "namespace": "default"}, "spec": spec})
    known = {
        "pools": simulated_pools(resolve(service)),
        "trace": TRACE,
        "replay": Replay(),
        "request_class": RequestClass.INTERACTIVE,
        "warmup_s": 600.0,
        "inputs": "a",
    }
    return Study(**{**known, **fields})


def test_a_run_is_judged_by_the_promise_of_the_manifest() -> None:
    made = study()
    row = made.run("static:1", 0)
    assert (row.attainment, row.targets) == (1.0, {"ttft_p95": 1.0, "tpot_p95": 1.0})
    strict = study({"ttft": {"p95": "1ms"}, "tpot": {"p95": "100ms"}}).run("static:1", 0)
    assert (strict.attainment, strict.targets) == (0.0, {"ttft_p95": 0.0, "tpot_p95": 1.0})
    assert row.ttft == strict.ttft


def test_the_warm_up_takes_at_most_a_quarter_and_is_neither_scored_nor_paid() -> None:
    made = study()
    assert made.score == pytest.approx((20.0, 80.0), rel=0.01)
    assert replace(made, warmup_s=5.0).score[0] == 5.0
    row = made.run("static:2", 0)
    start, end = row.score
    assert row.offered == sum(start <= request.at < end for request in TRACE)
    assert row.gpu_hours == pytest.approx(2 * (end - start) / 3600)
    assert row.dollars == pytest.approx(3.93 * row.gpu_hours)


def test_a_static_pool_stands_from_the_start_and_others_begin_with_the_minimum() -> None:
    made = study(least=2)
    static, slo = made.run("static:3", 0), made.run("slo", 0)
    assert ({moment.ready for moment in static.timeline}, static.starts) == ({3}, 0)
    assert slo.timeline[0].ready == 2


def test_a_row_repeats_itself_and_its_timeline_has_every_request() -> None:
    made = study(replay=Replay(times=2))
    row = made.run("slo", 1)
    assert row == made.run("slo", 1)
    assert row != made.run("slo", 2)
    assert sum(interval.offered * 10.0 for interval in row.timeline) == pytest.approx(2 * len(TRACE))
    assert all(interval.demand > 0 for interval in row.timeline[:8])


def test_a_run_tells_how_far_it_is_and_is_the_same_if_nobody_asks() -> None:
    made, shares = study(), list[float]()
    assert made.run("slo", 0, shares.append) == made.run("slo", 0)
    assert shares == sorted(shares)
    assert (shares[0], len(shares)) == (0.0, int(made.score[1] // 10) + 1)
    assert 0.8 < shares[-1] <= 1.0


def test_overload_is_shed_and_the_slo_policy_gives_its_reasons() -> None:
    crowd = tuple(TraceRequest(0.02 * number, 4000, 20) for number in range(1500))
    row = study(trace=crowd, warmup_s=0.0).run("slo", 0)
    assert row.shed > 0
    assert row.shed + row.failed <= row.offered * (1 - row.attainment)
    assert row.starts > 0
    assert row.decisions[0].before == {"main": 1}
    assert "demand" in row.decisions[0].sentence
    assert 0 < row.decisions[0].at < 30


def test_the_digest_names_every_input() -> None:
    made = study()
    others = [
        made.digest("slo", 1),
        made.digest("static:1", 0),
        replace(made, inputs="b").digest("slo", 0),
        replace(made, warmup_s=1.0).digest("slo", 0),
        replace(made, request_class=RequestClass.BATCH).digest("slo", 0),
        *(replace(made, replay=Replay(**{name: value})).digest("slo", 0)  # type: ignore[arg-type]
          for name, value in (("times", 2), ("start_s", 1.0), ("span_s", 9.0))),
    ]  # fmt: skip
    assert made.digest("slo", 0) == study().digest("slo", 0)
    assert len({made.digest("slo", 0), *others}) == 9


def test_only_runs_that_differ_are_made() -> None:
    assert list(study().seeds("static:2", 3)) == [0]
    assert list(study().seeds("slo", 3)) == [0, 1, 2]
    assert list(study(replay=Replay(times=2)).seeds("static:2", 3)) == [0, 1, 2]


def test_requests_that_no_engine_takes_are_left_out_and_counted() -> None:
    made = study(trace=(*TRACE, TraceRequest(9.0, 9000, 1)))
    assert (made.left_out, len(made.fitting)) == (1, len(TRACE))
    with pytest.raises(InvalidInput, match=r"spec\.engine\.maxModelLen: no request of the trace fits into 8192"):
        assert study(trace=(TraceRequest(0.0, 9000, 1),)).score


def test_a_service_without_a_promise_is_refused_by_field() -> None:
    with pytest.raises(InvalidInput, match=r"spec\.classes\.interactive\.slo: promises nothing.*write one"):
        assert study({}).promise


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("static:9", r"--policy: static:9: spec\.pools\[0\]\.replicas allows 1 to 4"),
        ("static:0", r"allows 1 to 4; choose a number within, or change the bounds"),
        ("hpa-queu", r"policy: is 'hpa-queu'; use hpa-queue"),
    ],
)
def test_a_policy_that_cannot_run_is_refused_before_any_does(policy: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        study().check(policy)
