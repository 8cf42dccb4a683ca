"""What a request's machine and its worker must know of the service that it was admitted to."""

from paceline_gateway.admission import Admission
from paceline_gateway.desk import Desk
from paceline_gateway.queues.ticket import Ticket
from paceline_gateway.requests.nouns import Terms


def terms_of(desk: Desk, admission: Admission, ticket: Ticket) -> Terms:
    """What the machine must know of it."""
    return Terms(
        service=desk.key,
        request_class=admission.request_class,
        stream=admission.stream,
        prompt_tokens=ticket.prompt_tokens,
        hold_s=desk.service.classes[admission.request_class].hold_timeout_s,
        attempts=admission.destination.attempts,
        promised=not admission.counts,
        onward=bool(admission.onward),
    )
