"""The base of every part of a request body, and the refusal of one."""

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, model_validator

from paceline_core.errors import Code, RequestError


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


def invalid(message: str, param: str | None) -> RequestError:
    """What a client is told that asked for what cannot be; `param` is the field."""
    return RequestError(Code.INVALID_REQUEST, message, param=param)
