"""One run from its files to its end: check, start, say how to use it, show how it is, stop."""

import asyncio
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import httpx

from paceline_cli.ui.up_outputs import UpOutput
from paceline_cli.up.check import ChatTarget
from paceline_cli.up.session import Session, UpOptions, interrupts
from paceline_core.clock import SystemClock
from paceline_core.errors import InvalidInput
from paceline_core.telemetry import configure
from paceline_local import HOST, prometheus
from paceline_local.component_configs import Ports
from paceline_local.context import RunContext
from paceline_local.health import HttpProber
from paceline_local.keys import KeyFile, create_signing_keys, in_vain
from paceline_local.manifests import LocalManifests, read_local_manifests
from paceline_local.preflight import PortPool, is_free, owner
from paceline_local.rundir import run_dir, write_record
from paceline_local.stack import LocalStack, running


async def up(options: UpOptions, output: UpOutput) -> None:
    """Run until the check is done, the duration is over or a signal comes. Raises PacelineError when it failed."""
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
    """The supervisor's own log beside its parts', so that the terminal stays the user's."""
    with path.open("a") as stream:
        configure("supervisor", level, stream)
        try:
            yield
        finally:
            configure("supervisor", "ERROR")


def choose_ports(public: int, pool: PortPool) -> Ports:
    """The public port as asked for (0: any), free ones for the rest. Raises InvalidInput when it is taken."""
    if public and not is_free(HOST, public):
        raise InvalidInput("--port", f"{HOST}:{public} is in use{owner(public)}; stop that, or choose another port")
    return Ports(
        public=public or pool.take(),
        gateway=pool.take(),
        autoscaler=pool.take(),
        prometheus=pool.take() if prometheus.find() else None,
    )
