"""Verdicts on a request's SLOs, and the phases of its time.

Verdicts: one per SLO name. Streams are judged on ttft and tpot (and e2e where promised), other answers on e2e alone.
Shed, failed, cut and late requests miss every target of their kind. Not counted at all: client errors, quota refusals,
token counting (nothing was promised for it), and requests that the client cancelled. A stream of fewer than two tokens
has no gap between tokens and keeps any tpot.

A ttft limit grows with the prompt where the class says so; its length is the worker's count, else the estimate.
Where no e2e is promised, the limit of an answer that does not stream is derived per quantile as `ttft + tokens * tpot`,
and counted under `e2e_<quantile>`. Known hole: a quantile that only one of the two has gives no limit and no verdict.

Phases: they sum to the request's end-to-end time. The gateway measures admit, its own queue, and the time at the
worker; the worker reports its part. `network` is the rest: both clocks only measure their own differences. Without a
report (another engine, a lost worker) the time to the first token counts as prefill and the rest as decode. For a
stream that moved, each worker's part counts as its phases say, and the time between them as queue.
"""

from collections.abc import Iterable
from math import inf

from paceline_core.objects.resolved import Target
from paceline_core.registry.enums import Outcome, Phase, Verdict
from paceline_gateway.request.types import RequestRecord, WorkerPhases

AVAILABILITY = "availability"
Verdicts = list[tuple[str, Verdict]]

_UNCOUNTED = frozenset({Outcome.CLIENT_ERROR, Outcome.QUOTA, Outcome.CANCELLED})
_OK, _GOOD = Outcome.OK, Verdict.GOOD
_MISSED = {"ttft": Verdict.BAD_TTFT, "tpot": Verdict.BAD_TPOT, "e2e": Verdict.BAD_E2E}


def evaluate_slos(record: RequestRecord, targets: Iterable[Target]) -> Verdicts:
    """Verdicts on all of the class's targets that apply, and on availability; empty if the request is not counted."""
    if record.outcome in _UNCOUNTED or record.terms is None or not record.terms.promised:
        return []
    prompt_tokens = record.meter.prompt or record.terms.prompt_tokens
    applying = [t for t in targets if t.cls is record.terms.request_class]
    if not record.terms.stream:
        applying = whole_answer_targets(applying, prompt_tokens, record.meter.output)
    failed = record.outcome is not _OK
    verdicts = [(t.name, Verdict.BAD_FAILED if failed else _verdict(record, t, prompt_tokens)) for t in applying]
    verdicts.append((AVAILABILITY, Verdict.BAD_FAILED if failed else _GOOD))
    return verdicts


def whole_answer_targets(targets: Iterable[Target], prompt_tokens: int, tokens: int) -> list[Target]:
    """The e2e targets of an answer of `tokens` that does not stream: promised, or derived from ttft and tpot."""
    by_metric: dict[str, dict[float, Target]] = {"ttft": {}, "tpot": {}, "e2e": {}}
    for target in targets:
        by_metric[target.metric][target.quantile] = target
    if by_metric["e2e"]:
        return list(by_metric["e2e"].values())
    return [
        Target(ttft.cls, "e2e", quantile, ttft.limit(prompt_tokens) + tokens * by_metric["tpot"][quantile].seconds)
        for quantile, ttft in by_metric["ttft"].items()
        if quantile in by_metric["tpot"]
    ]


def in_time_s(targets: Iterable[Target], prompt_tokens: int, output_tokens: int, *, stream: bool) -> float:
    """How long a request may wait and still be in time for its loosest target, if tokens then come as promised."""
    applying = list(targets)
    if not stream:
        each_s = max((target.seconds for target in applying if target.metric == "tpot"), default=0.0)
        whole = whole_answer_targets(applying, prompt_tokens, output_tokens)
        return max((target.limit(prompt_tokens) - output_tokens * each_s for target in whole), default=inf)
    return max((target.limit(prompt_tokens) for target in applying if target.metric == "ttft"), default=inf)


def _verdict(record: RequestRecord, target: Target, prompt_tokens: int) -> Verdict:
    measured: float | None = getattr(record, target.metric)
    if measured is None or measured <= target.limit(prompt_tokens):
        return _GOOD
    return _MISSED[target.metric]


ADMIT, TOKENIZE, QUEUE, BATCH_WAIT, PREFILL, DECODE, POST, NETWORK = Phase


def phases(record: RequestRecord) -> dict[Phase, float]:
    """Seconds by phase; empty if the request did not join the queue."""
    if record.queued is None:
        return {}
    waited = record.waited
    if record.sent is None or waited is None:
        return {ADMIT: record.queued - record.received, QUEUE: record.ended - record.queued}
    upstream = record.ended - record.sent
    worker, begun = record.meter.worker, record.again if record.resumed else record.first
    if not worker:  # it reported nothing
        worker = WorkerPhases(prefill=upstream)
        if begun is not None and begun >= record.sent:
            worker = WorkerPhases(prefill=begun - record.sent, decode=record.ended - begun)
    return {
        ADMIT: record.queued - record.received,
        TOKENIZE: worker.tokenize,
        QUEUE: waited + worker.queue,
        BATCH_WAIT: worker.batch_wait,
        PREFILL: worker.prefill + record.earlier.prefill,
        DECODE: worker.decode + record.earlier.decode,
        POST: worker.post,
        NETWORK: max(upstream - worker.total, 0.0),
    }
