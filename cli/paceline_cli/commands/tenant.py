"""A Tenant's name as an argument: checked the same way whether keys go to a file or to a cluster."""

import re
from typing import Annotated

import typer

from paceline_core.errors import InvalidInput
from paceline_core.objects.fields import FIXES, LABEL_PATTERN

TenantName = Annotated[str, typer.Argument(help="Name of the Tenant.")]


def checked(tenant: str) -> str:
    """The name itself, if a Tenant may have it; raises InvalidInput."""
    if not re.fullmatch(LABEL_PATTERN, tenant) or len(tenant) > 63:
        raise InvalidInput("tenant", f"{tenant!r} is not a Tenant's name ({FIXES[LABEL_PATTERN]})")
    return tenant
