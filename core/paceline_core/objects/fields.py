"""The types of fields: every string, list and map is bounded, so that a rule's cost has an upper bound.

Patterns are valid for Go's RE2 and for Rust's regex. `FIXES` says, for each pattern, what a user should write: the API
server and `field_errors` show that fix.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from paceline_core.units import CHARGE_PATTERN, DURATION_PATTERN, MONEY_PATTERN, QUANTITY_PATTERN

LABEL_PATTERN: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
SERVICE_NAME_PATTERN: Final = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
SUBDOMAIN_PATTERN: Final = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
POOL_PATTERN: Final = r"^[a-z][a-z0-9]{0,14}$"
DAYS_PATTERN: Final = r"^[1-9][0-9]{0,2}d$"
MODEL_NAME_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$"
REVISION_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._/-]*$"
ENV_PATTERN: Final = r"^[A-Za-z_][A-Za-z0-9_]*$"
HEADER_PATTERN: Final = r"^[A-Za-z0-9-]+$"
RESOURCE_PATTERN: Final = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?(/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"
ALLOWED_SERVICE_PATTERN: Final = r"^(\*|[a-z0-9]([-a-z0-9]*[a-z0-9])?/(\*|[a-z]([-a-z0-9]*[a-z0-9])?))$"
MONTH_PATTERN: Final = r"^[0-9]{4}-(0[1-9]|1[0-2])$"
CORES_PATTERN: Final = r"^([0-9]{1,6}m|[0-9]{1,4}(\.[0-9]{1,3})?)$"
LABEL_KEY_PATTERN: Final = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
MOUNT_PATTERN: Final = r"^(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+$"
TEXT_PATTERN: Final = r"^[^\x00]*$"
LINE_PATTERN: Final = r"^[^\x00-\x1f\x7f]*$"

_LABEL_FIX = "use lower-case letters, digits and dashes, like my-name"
FIXES: Final[dict[str, str]] = {
    DURATION_PATTERN: (
        "write a duration like 500ms, 30s, 5m or 1h30m in whole numbers of at most six digits: 1500ms, not 1.5s"
    ),
    QUANTITY_PATTERN: "write a quantity of bytes like 512Mi, 16Gi or 3350G, without blank or B: 16Gi, not 16 GB",
    CHARGE_PATTERN: 'write dollars as a string like "2.35"',
    MONEY_PATTERN: 'write dollars as a string like "2.35", not "$2.35", with at most six decimals',
    LABEL_PATTERN: _LABEL_FIX,
    SERVICE_NAME_PATTERN: f"{_LABEL_FIX}, starting with a letter",
    SUBDOMAIN_PATTERN: "use lower-case letters, digits, dashes and dots, like my-name",
    POOL_PATTERN: "use 1 to 15 lower-case letters and digits, starting with a letter, like main",
    DAYS_PATTERN: "write whole days like 28d, from 1d to 999d, not 4w",
    MODEL_NAME_PATTERN: "use letters, digits and . _ : / -, like llama-3.1-8b",
    REVISION_PATTERN: "name a branch, tag or commit, like main",
    ENV_PATTERN: "use letters, digits and underscores, not starting with a digit, like HF_HOME",
    HEADER_PATTERN: "use a header's name like x-team",
    RESOURCE_PATTERN: "name an extended resource like nvidia.com/gpu",
    ALLOWED_SERVICE_PATTERN: "write *, namespace/* or namespace/name",
    MONTH_PATTERN: "write a month like 2026-01",
    CORES_PATTERN: "write cores like 500m, 0.5 or 4, below 10000 and to the thousandth",
    LABEL_KEY_PATTERN: "write a label's key like team or example.com/team",
    MOUNT_PATTERN: "write an absolute path like /models, without dots at the begin of a name or a slash at its end",
    TEXT_PATTERN: "leave out the NUL character, which no process can be given",
    LINE_PATTERN: "leave out line breaks and other control characters",
}
OVERSIZED: Final[dict[str, str]] = {
    DURATION_PATTERN: r"([0-9]+(ms|s|m|h))+",
    MONEY_PATTERN: r"[0-9]+\.[0-9]+",
    DAYS_PATTERN: r"[0-9]+d",
    CORES_PATTERN: r"[0-9]+m|[0-9]+(\.[0-9]+)?",
}
"""Pattern -> the same form with numbers of any size."""


def camel(name: str) -> str:
    """`max_model_len` -> `maxModelLen`; `e2e` stays `e2e` (pydantic's own generator makes `e2E` of it)."""
    head, *tail = name.split("_")
    return head + "".join(part.capitalize() for part in tail)


class ApiModel(BaseModel):
    """A piece of an object: immutable, snake_case in Python, camelCase in manifests, described by docstrings."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        protected_namespaces=(),
    )


@dataclass(frozen=True, slots=True)
class _Unique:
    """A list that Kubernetes merges by key (`map`) or treats as a set; duplicates are refused here as well."""

    keys: tuple[str, ...] = ()

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._refuse_twins, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        kind: dict[str, Any] = {"x-kubernetes-list-type": "map" if self.keys else "set"}
        if self.keys:
            kind["x-kubernetes-list-map-keys"] = list(self.keys)
        return {**handler(schema), **kind}

    def _refuse_twins(self, items: tuple[Any, ...]) -> tuple[Any, ...]:
        seen: set[tuple[str, ...]] = set()
        for index, item in enumerate(items):
            key: tuple[str, ...] = (str(item),)
            if self.keys:
                aliases = {field.alias or name: name for name, field in type(item).model_fields.items()}
                key = tuple(str(getattr(item, aliases[name])) for name in self.keys)
            if key in seen:
                about = {"index": index, "what": ", ".join(map(repr, key))}
                raise PydanticCustomError("twin", "{what} stands twice; each may stand once", about)
            seen.add(key)
        return items


def keyed(*keys: str) -> _Unique:
    """Mark a list of objects as a map by these fields."""
    return _Unique(keys)


AS_SET: Final = _Unique()


def bounded(limit: int, least: int = 0) -> Any:
    """Length limits of a list or a map."""
    return Field(min_length=least, max_length=limit) if least else Field(max_length=limit)


Duration = Annotated[str, Field(pattern=DURATION_PATTERN, max_length=20)]
Days = Annotated[str, Field(pattern=DAYS_PATTERN, max_length=4)]
Money = Annotated[str, Field(pattern=MONEY_PATTERN, max_length=20)]
Charge = Annotated[str, Field(pattern=CHARGE_PATTERN, max_length=24)]
"""Money that was used: exact to what a gateway reckons with."""
Bytes = Annotated[str, Field(pattern=QUANTITY_PATTERN, max_length=20)]

Label = Annotated[str, Field(pattern=LABEL_PATTERN, min_length=1, max_length=63)]
ServiceName = Annotated[str, Field(pattern=SERVICE_NAME_PATTERN, min_length=1, max_length=40)]
Subdomain = Annotated[str, Field(pattern=SUBDOMAIN_PATTERN, min_length=1, max_length=253)]
PoolName = Annotated[str, Field(pattern=POOL_PATTERN, max_length=15)]
ModelName = Annotated[str, Field(pattern=MODEL_NAME_PATTERN, max_length=128)]
Source = Annotated[str, Field(pattern=LINE_PATTERN, min_length=1, max_length=512)]
ProcessText = Annotated[str, Field(pattern=TEXT_PATTERN, max_length=4096)]
"""What a process is started with: an argument, or a variable's value."""
ShortText = Annotated[str, Field(max_length=128)]
Sentence = Annotated[str, Field(max_length=1024)]
Time = Annotated[str, Field(max_length=40, json_schema_extra={"format": "date-time"})]

Count = Annotated[int, Field(ge=0, le=1_000_000)]
Total = Annotated[int, Field(ge=0, le=2**53)]

LabelValue = Annotated[str, Field(max_length=63)]
LabelKey = Annotated[str, Field(pattern=LABEL_KEY_PATTERN, min_length=1, max_length=317)]
Cores = Annotated[str, Field(pattern=CORES_PATTERN, max_length=9)]
MountPath = Annotated[str, Field(pattern=MOUNT_PATTERN, min_length=2, max_length=256)]
NodeLabels = Annotated[dict[str, LabelValue], bounded(16)]

Switch = Literal["open", "closed"]
Metric = Literal["ttft", "tpot", "e2e"]
Quantile = Literal["p50", "p90", "p95", "p99"]
