"""Tenant: permissions and limits of an owner of API keys. Only honoured in paceline's own namespace."""

from typing import Annotated, Literal

from pydantic import Field

from paceline_core.objects.fields import (
    ALLOWED_SERVICE_PATTERN,
    AS_SET,
    MONTH_PATTERN,
    ApiModel,
    Charge,
    Money,
    ShortText,
    Switch,
    Time,
    Total,
    bounded,
    keyed,
)
from paceline_core.objects.metadata import Conditions, Object
from paceline_core.registry.enums import RequestClass

AllowedService = Annotated[str, Field(pattern=ALLOWED_SERVICE_PATTERN, max_length=128)]


class MonthlyBudget(ApiModel):
    """What a tenant may use in a calendar month, UTC; after that requests are refused as insufficient_quota."""

    tokens: Total | None = None
    """Input plus output tokens. Default: no limit."""
    dollars: Money | None = None
    """US dollars. Default: no limit. Example: "250.00"."""


class Limits(ApiModel):
    """Rates and totals; each one that is not written is unlimited."""

    requests_per_minute: Total | None = None
    """Requests started in a minute."""
    input_tokens_per_minute: Total | None = None
    """Prompt tokens in a minute."""
    output_tokens_per_minute: Total | None = None
    """Generated tokens in a minute; reserved by estimate, settled by use."""
    concurrency: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Requests open at once."""
    monthly: MonthlyBudget | None = None
    """Budget of a calendar month, UTC."""


class TenantSpec(ApiModel):
    """What is allowed."""

    services: Annotated[tuple[AllowedService, ...], bounded(256, least=1), AS_SET]
    """Services that may be used: *, namespace/* or namespace/name. What is not listed does not exist for the tenant."""
    classes: Annotated[tuple[RequestClass, ...], bounded(3), AS_SET] = ()
    """Classes that may be asked for. Default: all three."""
    default_class: RequestClass | None = None
    """Class of requests that name none. Default: interactive if allowed, else the first of classes."""
    weight: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Share of a contended service against other tenants. Default: 1."""
    limits: Limits = Limits()
    """Rates and totals. Default: unlimited."""
    on_store_failure: Switch = "open"
    """While the store of counters cannot be reached: open serves within the gateway's own share of the limits
    (default), closed refuses."""


class Usage(ApiModel):
    """What was used in a month, as one gateway counted it."""

    id: ShortText
    """The gateway's name, in a cluster its pod's; `settled` holds what gateways that are gone had counted. With
    `@2026-01` after it: the numbers are of that month, the one before or after the status's."""
    requests: Total = 0
    """Requests."""
    input_tokens: Total = 0
    """Prompt tokens."""
    output_tokens: Total = 0
    """Generated tokens."""
    dollars: Charge | None = None
    """US dollars, to the billionth."""
    time: Time | None = None
    """When this was written, RFC 3339 UTC."""


class MonthlyUsage(ApiModel):
    """Month to date, and the month before. Written by the gateways, each adding to its own entries."""

    month: Annotated[str, Field(pattern=MONTH_PATTERN, max_length=7)] | None = None
    """The month that the numbers are of, UTC."""
    gateways: Annotated[tuple[Usage, ...], bounded(256), keyed("id")] = ()
    """One entry per gateway and month, and those named `settled`."""


class TenantStatus(ApiModel):
    """What is so."""

    observed_generation: Total | None = None
    """Generation of the spec that the operator judged."""
    conditions: Conditions = ()
    """Accepted: whether the tenant is honoured."""
    usage: MonthlyUsage = MonthlyUsage()
    """Month to date, and the month before."""


class Tenant(Object):
    """Who may ask for what and how much. Keys are Secrets with the label paceline.dev/tenant in a namespace of keys."""

    kind: Literal["Tenant"] = "Tenant"
    """Always Tenant."""
    spec: TenantSpec
    """What is allowed."""
    status: TenantStatus = TenantStatus()
    """What is so; written by operator and gateways."""
