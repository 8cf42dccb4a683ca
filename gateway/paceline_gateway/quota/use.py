"""What a request that has ended is charged for."""

from paceline_core.errors import Code
from paceline_core.registry import Outcome
from paceline_gateway.quota.nouns import QuotaUsage
from paceline_gateway.requests.nouns import RequestRecord
from paceline_gateway.requests.state import judge_status

_CLIENT_ERROR, _CANCELLED = Outcome.CLIENT_ERROR, Outcome.CANCELLED
_NOT_SERVED = frozenset({Outcome.SHED, Outcome.UPSTREAM_ERROR, Outcome.TIMEOUT})


def used_by_refused(status: int) -> QuotaUsage:
    """What a request will be charged for that a worker refuses with this status, if its refusal stands."""
    return QuotaUsage(requests=1) if judge_status(status) is Outcome.CLIENT_ERROR else QuotaUsage()


def made_since(seconds: float, step_s: float, choices: int) -> int | None:
    """Output tokens that a worker has made for a request in this time, a step of its own for each; None: not known."""
    return int(max(seconds, 0.0) / step_s) * choices if step_s > 0 else None


def used_by_failed(code: Code, reserved: QuotaUsage) -> QuotaUsage:
    """The charge for a request that ends with this error before its first byte: its prompt if workers died of it."""
    return QuotaUsage(1, reserved.input_tokens) if code is Code.REQUEST_ISOLATED else QuotaUsage()


def charged_usage(record: RequestRecord, reserved: QuotaUsage, made: int = 0) -> QuotaUsage:
    """What a request has used: nothing if it never reached a worker or no worker could answer it.

    Where the prompt's tokens were not told, the estimate stands; so does that of a whole answer whose tokens nobody
    has counted. It tells them at its end alone: of one that its client gave up, `made` is an estimate. One that workers
    died of pays its prompt.
    """
    if record.code is Code.REQUEST_ISOLATED:
        return QuotaUsage(1, record.meter.prompt or reserved.input_tokens, record.meter.output)
    if record.sent is None or (record.outcome in _NOT_SERVED and not record.meter.output):
        return QuotaUsage()
    if record.outcome is _CLIENT_ERROR and not record.meter.output:
        return QuotaUsage(requests=1)
    return QuotaUsage(1, record.meter.prompt or reserved.input_tokens, _output(record, reserved, made))


def _output(record: RequestRecord, reserved: QuotaUsage, made: int) -> int:
    meter, stream = record.meter, record.terms is not None and record.terms.stream
    if meter.output or meter.counted or stream:
        return meter.output
    return {_CANCELLED: made, Outcome.OK: reserved.output_tokens}.get(record.outcome, 0)
