"""Records of requests that have ended."""

from paceline_core.registry.enums import Outcome, RequestClass
from paceline_gateway.request.types import RequestRecord, RequestTerms, TokenUsage


def ended(
    ttft: float = 1.0, tpot: float = 0.1, output: int = 11, outcome: Outcome = Outcome.OK, at: float | None = None
) -> RequestRecord:
    """A stream that ended at `at`, or one that was received at 0."""
    took = ttft + tpot * max(output - 1, 1)
    received = 0.0 if at is None else at - took
    return RequestRecord(
        outcome=outcome,
        status=200,
        code=None,
        tenant="",
        terms=RequestTerms("default/chat", RequestClass.INTERACTIVE, True, 0, 60.0, 2),
        received=received,
        queued=received,
        sent=received,
        first=received + ttft,
        ended=received + took,
        attempts=1,
        worker="chat-main-0",
        meter=TokenUsage(output=output),
    )
