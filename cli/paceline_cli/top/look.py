"""One look at a gateway's admin port: its four views, read one after another within a limit."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from pydantic import ValidationError

from paceline_core.clock import Clock
from paceline_core.errors import PacelineError
from paceline_gateway.admin.views import Page, Queues, Services, Tenants, Workers

LIMIT_S: Final = 5.0
ROWS: Final = 500
BUSY: Final = 100
P = TypeVar("P", bound=Page)
Fetch = Callable[[str, Mapping[str, str]], Awaitable[str | bytes]]
"""Asks one gateway for a path with a query; raises a PacelineError."""


@dataclass(frozen=True, slots=True)
class Look:
    """What one gateway told; `at` is this program's monotonic time."""

    gateway: str
    at: float
    services: Services
    queues: Queues
    workers: Workers
    tenants: Tenants


@dataclass(frozen=True, slots=True)
class Silent:
    """A gateway that told nothing, and why."""

    gateway: str
    reason: str


Reading = Sequence[Look | Silent]


async def look(gateway: str, fetch: Fetch, service: str, clock: Clock, *, limit_s: float = LIMIT_S) -> Look | Silent:
    """Ask one gateway; `service` (`namespace/name`) narrows what is told, empty for all. Raises nothing."""
    every = {"limit": str(ROWS)}
    narrowed = {**every, "service": service} if service else every
    try:
        async with asyncio.timeout(limit_s):
            services = await _page(Services, fetch, "services", narrowed)
            queues = await _page(Queues, fetch, "queues", narrowed)
            workers = await _page(Workers, fetch, "workers", narrowed)
            tenants = await _page(Tenants, fetch, "tenants", {"limit": str(BUSY), "busy": "true"})
    except TimeoutError:
        return Silent(gateway, f"no answer within {limit_s:g} s")
    except ValidationError as error:
        return Silent(gateway, f"it answers in another form ({error.error_count()} fields); is it of another version?")
    except PacelineError as error:
        return Silent(gateway, str(error))
    return Look(gateway, clock.monotonic(), services, queues, workers, tenants)


async def _page(kind: type[P], fetch: Fetch, name: str, query: Mapping[str, str]) -> P:
    return kind.model_validate_json(await fetch(f"/v1/{name}", query))
