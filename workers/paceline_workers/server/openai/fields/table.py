"""All rows, and the refusal that comes from them."""

from collections.abc import Mapping
from typing import Any

from paceline_workers.server.openai.body import invalid
from paceline_workers.server.openai.fields.generating import GENERATING_FIELDS
from paceline_workers.server.openai.fields.messages import MESSAGES_FIELDS
from paceline_workers.server.openai.fields.others import OTHER_FIELDS
from paceline_workers.server.openai.fields.responses import RESPONSES_FIELDS
from paceline_workers.server.openai.fields.row import Field, Support
from paceline_workers.server.openai.fields.scoring import SCORING_FIELDS

FIELDS: tuple[Field, ...] = (
    *GENERATING_FIELDS,
    *OTHER_FIELDS,
    *SCORING_FIELDS,
    *RESPONSES_FIELDS,
    *MESSAGES_FIELDS,
)

_ROWS: Mapping[tuple[str, str], Field] = {(route, row.name): row for row in FIELDS for route in row.routes}


def field_of(route: str, name: str) -> Field | None:
    """The row of a field in a route's body, None if no API known here has it."""
    return _ROWS.get((route, name))


def refuse_unsupported(route: str, unread: Mapping[str, Any]) -> None:
    """Refuse, of the fields that no model reads, the first that would change the answer. Raises RequestError."""
    for name, value in unread.items():
        row = field_of(route, name)
        if row is not None and row.support is Support.REFUSED and not _neutral(row, value):
            raise invalid(f"`{name}` is not supported here; leave it out.", name)


def _neutral(row: Field, value: Any) -> bool:
    """0 and 1 are not taken for false and true."""
    return any(type(value) is type(neutral) and value == neutral for neutral in row.neutral)
