"""What a request's machine and its worker must know of the service that it was admitted to."""

from paceline_gateway.api.admission import AdmittedRequest
from paceline_gateway.queueing.queued_request import QueuedRequest
from paceline_gateway.request.types import RequestTerms
from paceline_gateway.services.service_state import ServiceState


def request_terms(desk: ServiceState, admission: AdmittedRequest, ticket: QueuedRequest) -> RequestTerms:
    """What the machine must know of it."""
    return RequestTerms(
        service=desk.key,
        request_class=admission.request_class,
        stream=admission.stream,
        prompt_tokens=ticket.prompt_tokens,
        hold_s=desk.service.classes[admission.request_class].hold_timeout_s,
        attempts=admission.destination.attempts,
        promised=not admission.counts,
        onward=bool(admission.onward),
    )
