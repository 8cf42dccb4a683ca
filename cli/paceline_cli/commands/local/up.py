"""`paceline up`: serve manifests on this machine, without a cluster."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from paceline_cli.commands import command_app
from paceline_cli.commands.local.state import DEFAULT, AsJson, State
from paceline_cli.ui.up_outputs import up_output
from paceline_cli.up.run import up as run_up
from paceline_cli.up.session import DEFAULT_PORT, UpOptions, parse_duration, parse_origins
from paceline_core.config import LEVEL_VARIABLE

app = command_app()


@app.command(help="Serve the services of FILE on this machine until Ctrl-C.")
def up(  # noqa: PLR0913, PLR0917 - one argument an option
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
    asyncio.run(run_up(options, up_output(as_json=as_json, terminal=sys.stdout.isatty())))
