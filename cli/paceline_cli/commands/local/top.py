"""`paceline top`: services, tenants and workers of a local run, as its gateway sees them, live."""

import asyncio
import sys
from collections.abc import Mapping

import httpx

from paceline_cli.commands import command_app
from paceline_cli.commands.local.state import DEFAULT, LIMIT_S, AsJson, State, ask, served
from paceline_cli.ui.gateway_poll import Reading, look
from paceline_cli.ui.refresh import INTERVAL_S, Interval, Once, OneService, RefreshInterval, show, until_interrupted
from paceline_cli.ui.top_outputs import TopOutput, top_output
from paceline_core.clock import SystemClock
from paceline_core.errors import Unreachable
from paceline_local.component_configs import GATEWAY
from paceline_local.rundir import read_record

app = command_app()


@app.command(help="Show services, tenants and workers live, as the gateway reports them.")
def top(
    service: OneService = "",
    once: Once = False,
    interval: Interval = INTERVAL_S,
    state: State = DEFAULT,
    as_json: AsJson = False,
) -> None:
    url = read_record(state).gateway
    key = served(ask(state, "GET", "/run"), service) if service else ""
    output = top_output(as_json=as_json, once=once, terminal=sys.stdout.isatty())
    with until_interrupted(output):
        asyncio.run(_watch(url, key, RefreshInterval(interval, once), output))


async def _watch(url: str, key: str, pace: RefreshInterval, output: TopOutput) -> None:
    clock = SystemClock()
    async with httpx.AsyncClient(base_url=url, timeout=LIMIT_S, trust_env=False) as http:

        async def fetch(path: str, query: Mapping[str, str]) -> bytes:
            try:
                return (await http.get(path, params=query)).raise_for_status().content
            except httpx.ConnectError:
                raise Unreachable("it is not up; `paceline status` shows what is") from None
            except httpx.HTTPError as error:
                raise Unreachable(str(error) or type(error).__name__) from None

        async def read() -> Reading:
            return [await look(GATEWAY, fetch, key, clock)]

        await show(read, pace, output, clock)
