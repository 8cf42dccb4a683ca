"""A question about the past of a service: what it is made of, both ways to simulate it, and what cannot be asked."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from math import pi, sin

import pytest
import yaml
from tests.every import cases
from tests.simulator.test_past_traffic import LOG, summary

from paceline_autoscaler.model.lengths import LengthSummary
from paceline_autoscaler.model.work_history import BIN_S, WorkHistory, code_of
from paceline_autoscaler.state import LearnedState, PoolSpeed, StartSample
from paceline_autoscaler.types import StartKind
from paceline_core.errors import InvalidInput
from paceline_core.objects import InferenceService, read, resolve
from paceline_core.objects.resolved import ResolvedService
from paceline_core.registry.enums import RequestClass
from paceline_core.wire import StepTime
from paceline_simulator.what_if import PastService, ServiceVariant, WhatIf
from paceline_simulator.what_if_outcome import (
    EXACT_WARM_UP_S,
    SETTLE_S,
    ExactRun,
    FluidSpan,
    ReplicaMoment,
    WhatIfOutcome,
)

MANIFEST = """
apiVersion: paceline.dev/v1alpha1
kind: InferenceService
metadata: {name: chat, namespace: default}
spec:
  model: {source: "builtin://demo"}
  engine: {maxModelLen: 8192, emulate: {accelerator: h100, model: llama-3.1-8b, coldStart: 20s}}
  classes: {interactive: {slo: {ttft: {p95: 1500ms}, tpot: {p95: 50ms}}}}
  pools: [{name: main, accelerator: h100, replicas: {min: 1, max: 8}}]
"""
NOW = 1_800_000_000.0
STEP = StepTime(base=0.02, prefill=8e-5, sequence=1e-4, kv=4e-7, context=0.0, observations=99)
"""A replica that is slow enough for few requests to fill several."""
SPEED = PoolSpeed("main", STEP, 64, 400_000)
STARTS = tuple(StartSample("main", StartKind.COLD, seconds) for seconds in (18.0, 22.0))


@cache
def service(slo: str = "ttft: {p95: 1500ms}, tpot: {p95: 50ms}", more: str = "") -> ResolvedService:
    text = MANIFEST.replace("ttft: {p95: 1500ms}, tpot: {p95: 50ms}", slo).replace(
        "maxModelLen: 8192", f"maxModelLen: 8192{more}"
    )
    return resolve(read(InferenceService, yaml.safe_load(text)))


def past(minutes: float = 60.0, level: float = 2.0, gap: int = 0, **changes: object) -> PastService:
    """Work that goes up and down twice, with so many unknown bins in its middle."""
    count = round(minutes * 60 / BIN_S)
    codes = bytearray(code_of(level * (1 + 0.5 * sin(4 * pi * place / count))) for place in range(count))
    codes[count // 2 : count // 2 + gap] = bytes(gap)
    history = WorkHistory(NOW - count * BIN_S, bytes(codes), variance=0.05 * level, mean=level)
    learned = LearnedState(starts=STARTS, speeds=(SPEED,))
    made = PastService(learned, history, (summary(LOG),), NOW)
    return replace(made, **changes)  # type: ignore[arg-type]


def question(factor: float = 1.5, known: PastService | None = None, since_s: float = 86_400.0) -> WhatIf:
    return WhatIf(ServiceVariant(service()), ServiceVariant(service(), factor), known or past(), since_s)


def played(asked: WhatIf, variant: ServiceVariant) -> WhatIfOutcome:
    """All of the span in the fluid model."""
    span = asked.fluid(variant)
    assert span.whole
    return span.outcome(span.end_s, asked.gpus)


def test_more_requests_need_more_replicas_in_proportion() -> None:
    asked = question(2.0)
    as_is, would_be = played(asked, asked.as_is), played(asked, asked.would_be)
    assert would_be.offered == pytest.approx(2 * as_is.offered, rel=0.01)
    assert 1.5 * as_is.replicas < would_be.replicas < 2.5 * as_is.replicas
    assert would_be.peak >= as_is.peak
    assert as_is.gpu_s == pytest.approx(as_is.replicas * as_is.seconds)
    assert as_is.holds(asked.promise(asked.as_is))


def test_the_work_of_the_past_is_the_work_that_is_played() -> None:
    """The mean level of 2.0 keeps two replicas busy; what is kept free for peaks comes on top."""
    asked = question()
    outcome = played(asked, asked.as_is)
    assert 2.0 < outcome.replicas < 4.0
    assert outcome.seconds == asked.span_s - asked.warm_up_s == 45 * 60


def test_a_promise_that_is_harder_to_keep_costs_more_or_is_missed() -> None:
    asked = replace(question(), would_be=ServiceVariant(service("ttft: {p95: 1500ms}, tpot: {p95: 25ms}")))
    as_is, would_be = played(asked, asked.as_is), played(asked, asked.would_be)
    assert would_be.replicas > 1.1 * as_is.replicas
    assert would_be.targets.keys() == {"ttft_p95", "tpot_p95"}


@cases("tpot", ["1ms", "21ms"])
def test_a_target_that_no_replica_keeps_leaves_the_others_their_own_share(tpot: str) -> None:
    """Each step computes a page of a prompt in any case, in the fluid model as in the engine."""
    asked = replace(
        question(1.0, past(8.0)), would_be=ServiceVariant(service(f"ttft: {{p95: 1h}}, tpot: {{p50: {tpot}}}"))
    )
    span = asked.fluid(asked.would_be)
    run = asked.exact(asked.would_be, 0.0, 4, lambda: False)
    for outcome in (span.outcome(span.end_s, 1), run.outcome(run.scored_s, asked.promise(asked.would_be), 1)):
        assert outcome.targets["ttft_p95"] == 1.0
        assert outcome.targets["tpot_p50"] < 0.5


def test_the_same_question_has_the_same_answer() -> None:
    asked, again = question(), question()
    assert asked.fluid(asked.would_be) == again.fluid(again.would_be)


def test_the_exact_simulator_agrees_with_the_fluid_model_on_a_calm_hour() -> None:
    asked = question(1.0, past(12.0, level=1.0))
    span = asked.fluid(asked.as_is)
    fluid = span.outcome(span.end_s, asked.gpus)
    run = asked.exact(asked.as_is, 0.0, span.moments[0].desired, lambda: False)
    assert run.whole
    exact = run.outcome(run.scored_s, asked.promise(asked.as_is), asked.gpus)
    assert exact.replicas == pytest.approx(fluid.replicas, rel=0.2)
    assert exact.targets["tpot_p95"] > 0.97
    assert exact.offered == pytest.approx(fluid.offered * exact.seconds / fluid.seconds, rel=0.25)


def test_an_exact_run_that_is_stopped_scores_what_had_time_to_end() -> None:
    asked, looks = question(1.0, past(12.0, level=1.0)), iter([False] * 30 + [True] * 99)
    run = asked.exact(asked.as_is, 0.0, 3, lambda: next(looks))
    assert not run.whole
    assert run.reached_s == 300.0
    assert run.scored_s == 300.0 - SETTLE_S
    outcome = run.outcome(run.scored_s, asked.promise(asked.as_is), 1)
    assert outcome.seconds == run.scored_s - EXACT_WARM_UP_S
    assert outcome.targets["ttft_p95"] > 0.9


def test_requests_that_were_not_answered_miss_every_target() -> None:
    requests = ((70.0, ()), (80.0, ("ttft_p95",)), (90.0, None), (10.0, None))
    run = ExactRun(120.0, True, requests, (ReplicaMoment(60.0, 2, 2, 0.0), ReplicaMoment(70.0, 4, 4, 1.0)))
    outcome = run.outcome(120.0, service().classes[RequestClass.INTERACTIVE].targets, 2)
    assert outcome.targets == pytest.approx({"ttft_p95": 1 / 3, "tpot_p95": 2 / 3})
    assert (outcome.replicas, outcome.peak, outcome.gpu_s) == (3.0, 4, 360.0)


def test_a_fluid_run_that_is_stopped_scores_whole_hours_that_had_time_to_end() -> None:
    asked, looks = question(known=past(150.0, level=0.5)), iter([False] * 800 + [True] * 999)
    span, whole = asked.fluid(asked.as_is, lambda: next(looks)), asked.fluid(asked.as_is)
    assert (span.whole, span.start_s, span.end_s) == (False, 900.0, 900.0 + 3600.0)
    first = span.outcome(span.end_s, asked.gpus)
    assert first == whole.outcome(span.end_s, asked.gpus)
    assert first.offered < whole.outcome(whole.end_s, asked.gpus).offered
    assert whole.outcome(whole.end_s, asked.gpus).seconds == 150 * 60 - 900.0


def waiting(span: FluidSpan, queued: Callable[[float], float]) -> FluidSpan:
    return replace(span, moments=tuple(replace(moment, queued=queued(moment.at)) for moment in span.moments))


def test_an_exact_run_begins_shortly_before_most_waits() -> None:
    asked = question(known=past(180.0, level=0.5))
    quiet = asked.fluid(asked.as_is)
    busy = waiting(quiet, lambda at: 9.0 if at == 7200.0 else 0.0)
    assert asked.worst_s(busy) == 7200.0 - 2 * EXACT_WARM_UP_S
    calm = waiting(quiet, lambda _: 0.0)
    highest = max(range(30, 360), key=lambda place: asked.past.history.codes[place])
    assert asked.worst_s(calm) == pytest.approx(highest * BIN_S - 2 * EXACT_WARM_UP_S)
    late = waiting(quiet, lambda at: at)
    assert asked.worst_s(late) == 3 * 3600 - 3600


def test_a_gap_is_played_on_a_line_and_is_not_called_known() -> None:
    whole, holed = question(known=past()), question(known=past(gap=20))
    assert (holed.span_s, whole.span_s) == (3600.0, 3600.0)
    assert (holed.known_s, whole.known_s) == (3000.0, 3600.0)
    assert played(holed, holed.as_is).offered == pytest.approx(played(whole, whole.as_is).offered, rel=0.1)


def test_only_the_time_that_is_asked_for_is_played() -> None:
    asked = question(since_s=1200.0)
    assert (asked.span_s, asked.begin, asked.warm_up_s) == (1200.0, NOW - 1200.0, 300.0)


EMPTY = LengthSummary(RequestClass.INTERACTIVE)


@cases(
    ("known", "message"),
    [
        (past(4.5), "4.5 minutes of the service's work are known, and what-if needs 5"),
        (
            past(6.0, level=0.01),
            r"requests? would be left to play, and what-if needs 20; ask for a longer time",
        ),
        (past(60.0, level=0.0), "no request came in this time; ask for a longer one"),
        (past(history=WorkHistory()), "0.0 minutes of the service's work are known"),
        (past(lengths=(EMPTY,)), "no lengths of requests are known yet; send some"),
        (past(learned=LearnedState()), "no replica of pool main has reported its speed"),
    ],
)
def test_what_is_missing_is_said_with_the_fix(known: PastService, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        question(known=known).check()


def test_a_factor_that_leaves_hardly_a_request_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"--rps: [0-9]+ requests? would be left to play, .* ask for more requests"):
        question(0.001, past(12.0)).check()
    question(0.1, past(12.0)).check()


def test_a_promise_of_e2e_alone_is_not_judged_by_the_fluid_model() -> None:
    asked = replace(question(), as_is=ServiceVariant(service("e2e: {p95: 20s}")))
    outcome = played(asked, asked.as_is)
    assert outcome.targets == {}
    assert outcome.replicas >= 2.0
    assert outcome.offered > 1000


def test_a_service_without_a_promise_or_with_two_pools_is_refused() -> None:
    asked = replace(question(), request_class=RequestClass.BATCH)
    with pytest.raises(InvalidInput, match=r"spec\.classes\.batch\.slo: promises nothing"):
        asked.check()
    two = replace(service(), pools=service().pools * 2)
    with pytest.raises(InvalidInput, match=r"spec\.pools: what-if is for one pool, and there are 2"):
        replace(question(), as_is=ServiceVariant(two)).check()


def test_what_a_simulation_cannot_follow_is_refused_before_the_first_run() -> None:
    asked = replace(question(), would_be=ServiceVariant(service(more=", kvCache: {attentionWindow: 4096}")))
    with pytest.raises(InvalidInput, match="attentionWindow: is not simulated"):
        asked.check()
