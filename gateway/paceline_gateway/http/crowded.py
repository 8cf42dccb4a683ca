"""The refusal of a request whose tenant has as many answers under way as it may."""

from paceline_core.errors import Code, RequestError
from paceline_gateway.http.message import HttpRequest
from paceline_gateway.http.reader import RejectedRequest


def too_many_in_flight(request: HttpRequest) -> RejectedRequest:
    """The refusal for a tenant that has as many answers under way as it may."""
    message = "Your requests take up all the connections that one tenant may have; retry."
    error = RequestError(Code.NO_CAPACITY, message, retry_after=1.0)
    return RejectedRequest(error, request.head, request.keep_alive, request.chunked)
