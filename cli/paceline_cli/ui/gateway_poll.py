"""Polls a gateway's admin port: reads its four views one after another within a time limit."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from pydantic import ValidationError

from paceline_core.clock import Clock
from paceline_core.errors import Forbidden, PacelineError
from paceline_gateway.admin.views import Page, Queues, Services, Tenants, Workers

LIMIT_S: Final = 5.0
ROWS: Final = 200
PAGES: Final = 5
"""The most entries read from each list."""
P = TypeVar("P", bound=Page)
Fetch = Callable[[str, Mapping[str, str]], Awaitable[str | bytes]]
"""Reads a path with a query from one gateway; raises a PacelineError."""


@dataclass(frozen=True, slots=True)
class GatewaySnapshot:
    """A gateway's report; `at` is this program's monotonic time."""

    gateway: str
    at: float
    services: Services
    queues: Queues
    workers: Workers
    tenants: Tenants


@dataclass(frozen=True, slots=True)
class UnreachableGateway:
    """A gateway that did not answer, and why; `forbidden`: the permission for it is missing."""

    gateway: str
    reason: str
    forbidden: bool = False


Reading = Sequence[GatewaySnapshot | UnreachableGateway]


async def look(
    gateway: str, fetch: Fetch, service: str, clock: Clock, *, limit_s: float = LIMIT_S
) -> GatewaySnapshot | UnreachableGateway:
    """Poll one gateway; `service` (`namespace/name`) narrows the report, empty for all. Raises nothing."""
    narrowed = {"service": service} if service else {}
    try:
        async with asyncio.timeout(limit_s):
            services = await _pages(Services, fetch, narrowed, lambda page: page.services[-1].service)
            queues = await _pages(Queues, fetch, narrowed, lambda page: page.queues[-1].service)
            workers = await _pages(
                Workers, fetch, narrowed, lambda page: f"{page.workers[-1].service} {page.workers[-1].worker}"
            )
            tenants = await _pages(Tenants, fetch, {"busy": "true"}, lambda page: page.tenants[-1].tenant)
    except TimeoutError:
        return UnreachableGateway(gateway, f"no answer within {limit_s:g} s")
    except ValidationError as error:
        return UnreachableGateway(
            gateway, f"it answers in another form ({error.error_count()} fields); is it of another version?"
        )
    except PacelineError as error:
        return UnreachableGateway(gateway, str(error), isinstance(error, Forbidden))
    return GatewaySnapshot(gateway, clock.monotonic(), services, queues, workers, tenants)


async def _pages(kind: type[P], fetch: Fetch, query: Mapping[str, str], last: Callable[[P], str]) -> P:
    """Read a list page by page and join the pages."""
    name = kind.__name__.lower()
    whole = kind.model_validate_json(await fetch(f"/v1/{name}", {"limit": str(ROWS), **query}))
    for _ in range(PAGES - 1):
        if not whole.truncated or not getattr(whole, name):
            break
        more = await fetch(f"/v1/{name}", {"limit": str(ROWS), **query, "after": last(whole)})
        page = kind.model_validate_json(more)
        whole = page.model_copy(update={name: (*getattr(whole, name), *getattr(page, name))})
    return whole
