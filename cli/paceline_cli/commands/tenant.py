"""A Tenant's name as an argument: checked the same way whether keys go to a file or to a cluster."""

import re
from collections.abc import Sequence
from typing import Annotated

import typer

from paceline_core.errors import InvalidInput, NotFound
from paceline_core.objects.fields import FIXES, LABEL_PATTERN
from paceline_core.objects.problems import did_you_mean

TenantName = Annotated[str, typer.Argument(help="Name of the Tenant.")]


def checked(tenant: str) -> str:
    """The name itself, if a Tenant may have it; raises InvalidInput."""
    if not re.fullmatch(LABEL_PATTERN, tenant) or len(tenant) > 63:
        raise InvalidInput("tenant", f"{tenant!r} is not a Tenant's name ({FIXES[LABEL_PATTERN]})")
    return tenant


def missing(tenant: str, place: str, there: Sequence[str] | None, fix: str) -> NotFound:
    """That a Tenant is not at a place, with the likely name among those there, or all; None: they are not known."""
    others = "" if there is None else likely(tenant, there)
    return NotFound(f"there is no Tenant {tenant} in {place}{others}; {fix}")


def likely(tenant: str, there: Sequence[str]) -> str:
    """`; did you mean local?`, or the Tenants that there are."""
    return did_you_mean(tenant, there) or (f"; the Tenants are {', '.join(there[:10])}" if there else ", nor any other")
