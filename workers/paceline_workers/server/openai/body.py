"""The base of every part of a request body."""

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator


class Body(BaseModel):
    """Unknown fields are kept aside, null counts as absent, NaN is refused."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)

    def check(self) -> None:
        """What no field can tell alone. Raises RequestError."""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        return {name: value for name, value in data.items() if value is not None} if isinstance(data, dict) else data
