"""Parses request bodies, and refuses those that do not fit: names the field by its path and says what it must be.

Holds the base class of every part of a body. The table in `fields` decides about a field that no model reads: it is
refused by name if it would change the answer, else ignored.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import ErrorDetails

from paceline_core.errors import Code, RequestError
from paceline_core.json_limits import check_shape, not_json, too_deep
from paceline_workers.server.openai.fields import refuse_unsupported


class Body(BaseModel):
    """Keeps unknown fields aside, treats null as absent, refuses NaN, and never converts one type to another.

    `route`: the route of a whole body, to look up its fields in `fields`; "" for a part of a body.
    """

    route: ClassVar[str] = ""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False, strict=True)

    def check(self) -> None:
        """Check rules that involve several fields. Raises RequestError."""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        return {name: value for name, value in data.items() if value is not None} if isinstance(data, dict) else data


R = TypeVar("R", bound=Body)


def parse(kind: type[R], body: bytes) -> R:
    """Parse a body. Raises RequestError naming the field and the fix."""
    try:
        check_shape(body)
        request = kind.model_validate_json(body)
    except ValidationError as error:
        raise refusal(error.errors(include_url=False)[0], body) from None
    except ValueError as error:
        raise unreadable(str(error), body) from None
    if request.model_extra:
        refuse_unsupported(kind.route, request.model_extra)
    request.check()
    return request


def invalid(message: str, param: str | None) -> RequestError:
    """The error for a client's invalid request; `param` is the field."""
    return RequestError(Code.INVALID_REQUEST, message, param=param)


_REASONS: Mapping[str, str] = {
    "bool_type": "must be true or false",
    "dict_type": "must be an object",
    "finite_number": "must be a number that is not infinite",
    "float_type": "must be a number",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be {ge} or more",
    "int_type": "must be a whole number",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be {le} or less",
    "list_type": "must be a list",
    "literal_error": "must be {expected}",
    "model_type": "must be an object",
    "string_pattern_mismatch": "must match {pattern}",
    "string_too_long": "holds at most {max_length} characters",
    "string_too_short": "must not be empty",
    "string_type": "must be a text",
    "too_long": "holds at most {max_length} entries",
    "too_short": "must not be empty",
    "value_error": "{error}",
}
"""Messages by pydantic's type of error; other types keep pydantic's message."""


def refusal(first: ErrorDetails, body: bytes) -> RequestError:
    """The refusal of `body` for the error `first` that pydantic found."""
    context = first.get("ctx", {})
    if first["type"] == "json_invalid":
        return unreadable(context["error"], body)
    param = _param(first["loc"])
    if first["type"] == "missing":
        return invalid(f"`{param}` is required.", param)
    bounds = {name: f"{bound:g}" if isinstance(bound, float) else bound for name, bound in context.items()}
    reason = _REASONS[first["type"]].format(**bounds) if first["type"] in _REASONS else f"is wrong: {first['msg']}"
    subject = f"`{param}`" if param else "The body"
    return invalid(f"{subject} {reason}.", param or None)


def unreadable(reason: str, body: bytes) -> RequestError:
    """The refusal of a body that is not JSON, or nested too deeply for the parser."""
    return too_deep() if reason.startswith("recursion limit") else not_json(body, f": {reason}")


def _param(location: tuple[int | str, ...]) -> str:
    """`("messages", 0, "role")` -> `messages[0].role`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return "".join(parts).removeprefix(".")
