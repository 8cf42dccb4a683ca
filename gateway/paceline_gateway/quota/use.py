"""What a request that has ended is charged for."""

from paceline_core.registry import Outcome
from paceline_gateway.quota.nouns import Use
from paceline_gateway.requests.nouns import Record

_NOT_SERVED = frozenset({Outcome.SHED, Outcome.UPSTREAM_ERROR, Outcome.TIMEOUT})


def used(record: Record, reserved: Use) -> Use:
    """What a request has used: nothing if it never reached a worker or no worker could answer it.

    Where the prompt's tokens were not told, the estimate stands.
    """
    if record.sent is None or (record.outcome in _NOT_SERVED and not record.meter.output):
        return Use()
    if record.outcome is Outcome.CLIENT_ERROR:
        return Use(requests=1)
    return Use(1, record.meter.prompt or reserved.input_tokens, record.meter.output)
