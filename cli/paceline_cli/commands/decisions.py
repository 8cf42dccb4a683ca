"""The options of `why` and the question that they put to an autoscaler, for a run here and for a cluster alike."""

from datetime import datetime
from typing import Annotated, Final

import typer

from paceline_core.clock import rfc3339
from paceline_core.errors import InvalidInput
from paceline_core.units import seconds

MAX_DECISIONS: Final = 2000
DEFAULT_LIMIT: Final = 10

Limit = Annotated[
    int | None,
    typer.Option(
        "--limit",
        min=1,
        max=MAX_DECISIONS,
        help=f"Number of decisions. Default: {DEFAULT_LIMIT}, with --since {MAX_DECISIONS}.",
    ),
]
Since = Annotated[
    str,
    typer.Option("--since", metavar="TIME", help="Changes of the last 30m, 24h or 2d, or since 2026-01-31T12:00:00Z."),
]


def decision_query(service: str, limit: int | None, since: str, *, inputs: bool) -> dict[str, str]:
    """The parameters of `/debug/decisions`; with `since` only changes, unless the inputs are wanted too.

    Raises InvalidInput for a `since` that is neither a duration nor a time.
    """
    query = {"service": service, "limit": str(limit or (MAX_DECISIONS if since else DEFAULT_LIMIT))}
    if not inputs:
        query["inputs"] = "false"
    if since:
        query |= {"since": _since(since)} | ({} if inputs else {"kind": "change"})
    return query


def _since(text: str) -> str:
    """Seconds before now as a number, or a time in UTC."""
    try:
        return f"{seconds(text):g}"
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        fix = "write a duration like 30m, 24h or 2d, or a time like 2026-01-31T12:00:00Z"
        raise InvalidInput("--since", f"{text!r} is neither; {fix}") from None
    if moment.tzinfo is None:
        raise InvalidInput("--since", f"{text!r} has no time zone; write {text}Z for UTC, or {text}+01:00")
    return rfc3339(moment)
