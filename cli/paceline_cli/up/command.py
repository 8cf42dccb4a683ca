"""`paceline up`: serve manifests on this machine, without a cluster.

One run from its files to its end: check, start, print how to use it, show its state, stop.
"""

import asyncio
import contextlib
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import httpx
import typer

from paceline_cli.commands import command_app
from paceline_cli.commands.local.state import DEFAULT, AsJson, State
from paceline_cli.ui.up_outputs import UpOutput, up_output
from paceline_cli.up.check import ChatTarget
from paceline_cli.up.session import DEFAULT_PORT, Session, UpOptions, interrupts
from paceline_core.clock import SystemClock
from paceline_core.config import LEVEL_VARIABLE, ORIGIN_PATTERN
from paceline_core.errors import InvalidInput
from paceline_core.telemetry import configure
from paceline_core.units import seconds
from paceline_local import HOST
from paceline_local.component_configs import PROMETHEUS, Ports
from paceline_local.context import HttpProber, PortPool, RunContext, is_free, owner
from paceline_local.keys import KeyFile, create_signing_keys, in_vain
from paceline_local.manifests import LocalManifests, read_local_manifests
from paceline_local.rundir import run_dir, write_record
from paceline_local.stack import LocalStack, running

app = command_app()


@app.command(help="Serve the services of FILE on this machine until Ctrl-C.")
def up(  # noqa: PLR0913, PLR0917 - one argument for each option
    files: Annotated[
        list[Path],
        typer.Option("--file", "-f", metavar="FILE", help="YAML file of manifests, read once; may be repeated."),
    ],
    check: Annotated[bool, typer.Option("--check", help="Start, send one chat, print its speed, stop.")] = False,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, metavar="PORT", help="Port of the API (0 = random).")
    ] = DEFAULT_PORT,
    duration: Annotated[
        str | None,
        typer.Option("--duration", metavar="TIME", help="Stop this long after everything is ready, e.g. 90s."),
    ] = None,
    cors_origin: Annotated[
        list[str] | None,
        typer.Option("--cors-origin", metavar="ORIGIN", help="Let pages of ORIGIN read answers; may be repeated."),
    ] = None,
    state: State = DEFAULT,
    as_json: AsJson = False,
) -> None:
    level = os.environ.get(LEVEL_VARIABLE, "INFO")
    origins = parse_origins(cors_origin or ())
    options = UpOptions(tuple(files), state.absolute(), port, parse_duration(duration), check, level, origins)
    asyncio.run(serve(options, up_output(as_json=as_json, terminal=sys.stdout.isatty())))


def parse_origins(texts: Sequence[str]) -> tuple[str, ...]:
    """`https://chat.example.com` or `*`; raises InvalidInput naming the option."""
    for text in texts:
        if not re.fullmatch(ORIGIN_PATTERN, text):
            raise InvalidInput("--cors-origin", f"{text!r} is not an origin; write it like http://localhost:3000, or *")
    return tuple(texts)


def parse_duration(text: str | None) -> float | None:
    """`90s` -> 90.0; raises InvalidInput naming the option."""
    if text is None:
        return None
    try:
        return seconds(text)
    except ValueError as error:
        raise InvalidInput("--duration", str(error)) from None


async def serve(options: UpOptions, output: UpOutput) -> None:
    """Run until the check is done, the duration is over or a signal comes. Raises PacelineError if it failed."""
    clock = SystemClock()
    manifests = read_local_manifests(options.files, clock.utc())
    with run_dir(options.state) as run:
        pool = PortPool(HOST)
        ports = choose_ports(options.port, pool)
        with _logging_to(run.log("supervisor"), options.log_level):
            async with httpx.AsyncClient(trust_env=False) as http:
                site = RunContext(
                    run,
                    pool,
                    clock,
                    HttpProber(http),
                    f"http://{HOST}:{ports.public}",
                    options.log_level,
                    options.cors_origins,
                )
                await _up(options, site, manifests, ports, output)
    output.stopped(run.logs)


async def _up(options: UpOptions, site: RunContext, manifests: LocalManifests, ports: Ports, output: UpOutput) -> None:
    keys, stop = KeyFile(options.state), asyncio.Event()
    key = keys.local(site.clock)
    notes = (*manifests.notes, *in_vain(keys.all(), manifests.tenants))
    targets = {name: ChatTarget(site.endpoint, key, one.model.served_name) for name, one in manifests.services.items()}
    create_signing_keys(site.run)
    stack = LocalStack(site, manifests, keys, ports)
    with interrupts(first=stop.set, second=stack.kill):
        async with running(stack, site):
            write_record(site.run.root, stack.record(os.getpid()))
            try:
                await Session(options, stack, targets, output, site.clock, stop).run(notes)
            finally:
                output.stopping()


@contextlib.contextmanager
def _logging_to(path: Path, level: str) -> Iterator[None]:
    """Write the supervisor's own log beside its parts' logs, not to the user's terminal."""
    with path.open("a") as stream:
        configure("supervisor", level, stream)
        try:
            yield
        finally:
            configure("supervisor", "ERROR")


def choose_ports(public: int, pool: PortPool) -> Ports:
    """The requested public port (0: any), free ones for the rest. Raises InvalidInput if it is taken."""
    if public and not is_free(HOST, public):
        raise InvalidInput("--port", f"{HOST}:{public} is in use{owner(public)}; stop that, or choose another port")
    return Ports(
        public=public or pool.take(),
        gateway=pool.take(),
        autoscaler=pool.take(),
        prometheus=pool.take() if shutil.which(PROMETHEUS) else None,
    )
