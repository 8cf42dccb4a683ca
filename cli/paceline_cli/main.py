"""The program `paceline`: finds the command, imports it, and turns every error into one line and an exit status.

Exit status: 0 done, 1 it failed, 2 the input is wrong. Commands are imported when called, so that `paceline version`
does not pay for `paceline up`.
"""

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from paceline_cli.failures import LEVEL_VARIABLE, explain
from paceline_core import __version__

COMMANDS = {
    "up": "paceline_cli.commands.up",
    "lint": "paceline_cli.commands.lint",
    "status": "paceline_cli.commands.status",
    "why": "paceline_cli.commands.why",
    "keys": "paceline_cli.commands.keys",
    "bench": "paceline_cli.bench.command",
    "version": "paceline_cli.commands.version",
}


class _Lazy(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - typer's signature
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - typer's signature
        if cmd_name not in COMMANDS:
            return None
        return typer.main.get_command(importlib.import_module(COMMANDS[cmd_name]).app)


_group = typer.Typer(
    cls=_Lazy, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"paceline {__version__}")
        raise typer.Exit


@_group.callback()
def _about(
    debug: Annotated[bool, typer.Option("--debug", help="Show stack traces and debug logs.")] = False,
    version: Annotated[  # noqa: ARG001 - its callback has answered
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Say the latency you promise; paceline keeps it at the least GPU cost."""
    if debug:
        os.environ[LEVEL_VARIABLE] = "DEBUG"


def app(arguments: Sequence[str] | None = None) -> None:
    """Run the program and leave with its exit status."""
    try:
        _group(arguments, prog_name="paceline")
    except Exception as error:  # noqa: BLE001 - the one place where no stack trace may pass
        sys.exit(explain(error, sys.stderr))


if __name__ == "__main__":
    app()
