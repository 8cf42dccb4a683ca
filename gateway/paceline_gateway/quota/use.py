"""What a request that has ended is charged for."""

from paceline_core.registry import Outcome
from paceline_gateway.quota.nouns import Use
from paceline_gateway.requests.nouns import Record
from paceline_gateway.requests.state import judge_status

_CLIENT_ERROR = Outcome.CLIENT_ERROR
_NOT_SERVED = frozenset({Outcome.SHED, Outcome.UPSTREAM_ERROR, Outcome.TIMEOUT})


def used_by_refused(status: int) -> Use:
    """What a request will be charged for that a worker refuses with this status, if its refusal stands."""
    return Use(requests=1) if judge_status(status) is Outcome.CLIENT_ERROR else Use()


def used(record: Record, reserved: Use) -> Use:
    """What a request has used: nothing if it never reached a worker or no worker could answer it.

    Where the prompt's tokens were not told, the estimate stands.
    """
    if record.sent is None or (record.outcome in _NOT_SERVED and not record.meter.output):
        return Use()
    if record.outcome is _CLIENT_ERROR:
        return Use(requests=1)
    return Use(1, record.meter.prompt or reserved.input_tokens, record.meter.output)
