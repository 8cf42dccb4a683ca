"""What a client is told whose body does not fit: the field by its path, and what it must be.

The base of every part of a request body, how a body is read, and the refusal of one. A field that no model reads is
judged by the table in `fields`: refused by name if it would change the answer, else ignored.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import ErrorDetails

from paceline_core.errors import Code, RequestError
from paceline_core.json_limits import check_shape, not_json, too_deep
from paceline_workers.server.openai.fields import refuse_unsupported


class Body(BaseModel):
    """Unknown fields are kept aside, null counts as absent, NaN is refused; a type is never taken for another.

    `route`: the whole body of that route, whose fields stand in `fields`; "" for a part of one.
    """

    route: ClassVar[str] = ""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False, strict=True)

    def check(self) -> None:
        """What no field can tell alone. Raises RequestError."""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        return {name: value for name, value in data.items() if value is not None} if isinstance(data, dict) else data


R = TypeVar("R", bound=Body)


def parse(kind: type[R], body: bytes) -> R:
    """Read one body. Raises RequestError naming the field and the fix."""
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
    """What a client is told that asked for what cannot be; `param` is the field."""
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
"""By pydantic's type of error; its own words for any other."""


def refusal(first: ErrorDetails, body: bytes) -> RequestError:
    """The refusal of `body`, in which pydantic found `first`."""
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
    """The refusal of what is no JSON, or too deep for its reader."""
    return too_deep() if reason.startswith("recursion limit") else not_json(body, f": {reason}")


def _param(location: tuple[int | str, ...]) -> str:
    """`("messages", 0, "role")` -> `messages[0].role`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return "".join(parts).removeprefix(".")
