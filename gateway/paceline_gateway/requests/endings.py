"""The errors with which a request ends that was admitted: what the client is told of it."""

from paceline_core.errors import Code, RequestError
from paceline_gateway.requests.state import ADMITTED, QUEUED, STREAMING, RequestState


def isolated() -> RequestError:
    """Two workers died of it."""
    why = (
        "Two workers died while they worked on this request, so no other one gets it. "
        "Do not send it again as it is; tell whoever runs the service its request id."
    )
    return RequestError(Code.REQUEST_ISOLATED, why)


def lost(*, begun: bool) -> RequestError:
    """Its worker was lost once too often."""
    if begun:
        why = "The worker was lost while it answered; what came so far is incomplete."
        return RequestError(Code.STREAM_LOST, why)
    return RequestError(Code.UPSTREAM_ERROR, "The worker was lost before it answered; retry.")


def late(state: RequestState, *, begun: bool, held: bool) -> RequestError:
    """The limit of its state has passed; `held`: its service has no worker."""
    if state is ADMITTED:
        return RequestError(Code.HELD_TIMEOUT, "The tenant's limits could not be looked up in time; retry later.")
    if begun and state is not STREAMING:
        why = "The worker was lost while it answered, and no other one went on in time; what came is incomplete."
        return RequestError(Code.STREAM_LOST, why)
    if state is QUEUED:
        cause = "no worker of the model became ready" if held else "no worker of the model had room"
        return RequestError(Code.HELD_TIMEOUT, f"The request waited its whole limit, but {cause}; retry later.")
    return RequestError(Code.UPSTREAM_TIMEOUT, "The worker took too long to answer; retry.")
