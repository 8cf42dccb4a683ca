"""The programs `paceline` (this machine) and `kubectl paceline` (a cluster): find the command, import it, run it.

Every error becomes `error: field: message (fix)` and an exit status: 0 done, 1 it failed, 2 the input is wrong; a stack
trace is shown only on request (`--debug`). Commands are imported when called, so that `paceline version` does not pay
for `paceline up`. The entry point, `app` or `plugin`, decides which program runs; a command with the same name means
the same in both, for another place.
"""

import errno
import importlib
import json
import os
import platform
import sys
import traceback
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, TextIO

import typer
from typer.core import TyperGroup

from paceline_cli.commands import command_app
from paceline_core import __version__
from paceline_core.errors import InvalidInput, PacelineError

LEVEL_VARIABLE = "PACELINE_LOG_LEVEL"
COMMANDS = {
    "up": "paceline_cli.up.command",
    "lint": "paceline_cli.commands.lint",
    "status": "paceline_cli.commands.local.status:status_app",
    "top": "paceline_cli.commands.local.top",
    "why": "paceline_cli.commands.local.status:why_app",
    "keys": "paceline_cli.commands.local.tenants:keys_app",
    "usage": "paceline_cli.commands.local.tenants:usage_app",
    "bench": "paceline_cli.bench.command",
    "plan": "paceline_cli.plan.command",
    "quote": "paceline_cli.plan.quote",
    "simulate": "paceline_cli.simulate.command",
    "what-if": "paceline_cli.commands.local.what_if",
    "version": "paceline_cli.main:version_app",
}
CLUSTER_COMMANDS = {
    "status": "paceline_cli.commands.kube.status:status_app",
    "top": "paceline_cli.commands.kube.top:app",
    "why": "paceline_cli.commands.kube.status:why_app",
    "what-if": "paceline_cli.commands.kube.what_if",
    "quote": "paceline_cli.commands.kube.quote:app",
    "pause": "paceline_cli.commands.kube.pause:pause_app",
    "resume": "paceline_cli.commands.kube.pause:resume_app",
    "keys": "paceline_cli.commands.kube.tenants:keys_app",
    "usage": "paceline_cli.commands.kube.tenants:usage_app",
    "support-bundle": "paceline_cli.commands.kube.support_bundle:app",
    "version": "paceline_cli.main:version_app",
}


class _Lazy(TyperGroup):
    modules: ClassVar[Mapping[str, str]] = COMMANDS

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - typer's signature
        return list(self.modules)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - typer's signature
        if cmd_name not in self.modules:
            return None
        module, _, name = self.modules[cmd_name].partition(":")
        return typer.main.get_command(getattr(importlib.import_module(module), name or "app"))


class _LazyPlugin(_Lazy):
    modules = CLUSTER_COMMANDS

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        try:
            return super().get_command(ctx, cmd_name)
        except ModuleNotFoundError as error:
            fix = "in a clone of paceline, pip install '.[cli,kubernetes]'"
            raise InvalidInput("kubectl paceline", f"needs the package {error.name}: {fix}") from None


_group, _plugin_group = (
    typer.Typer(
        cls=cls, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
    )
    for cls in (_Lazy, _LazyPlugin)
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"paceline {__version__}")
        raise typer.Exit


@_plugin_group.callback()
@_group.callback()
def _about(
    debug: Annotated[bool, typer.Option("--debug", help="Show stack traces and debug logs.")] = False,
    version: Annotated[  # noqa: ARG001 - its callback has answered
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Serve models at the latency you promise, at the least GPU cost."""
    if debug:
        os.environ[LEVEL_VARIABLE] = "DEBUG"


version_app = command_app()


@version_app.command("version", help="Print the version.")
def print_version(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    if as_json:
        typer.echo(json.dumps({"paceline": __version__, "python": platform.python_version()}))
    else:
        typer.echo(f"paceline {__version__}")


def _run(group: typer.Typer, name: str, arguments: Sequence[str] | None = None) -> None:
    try:
        group(arguments, prog_name=name)
    except Exception as error:  # noqa: BLE001 - the one place that must let no stack trace pass
        sys.exit(explain(error, sys.stderr))


app, plugin = partial(_run, _group, "paceline"), partial(_run, _plugin_group, "kubectl paceline")


FAILED, BAD_INPUT = 1, 2
_MAX_LINES = 100
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def explain(error: Exception, stream: TextIO) -> int:
    """Write the error; returns the exit status for it."""
    if isinstance(error, OSError):
        error = _of_path(error)
    if not isinstance(error, PacelineError):
        stream.write(f"error: unexpected: {type(error).__name__}: {error} (paceline --debug shows where)\n")
    else:
        lines = str(error).splitlines()
        for line in lines[:_MAX_LINES]:
            stream.write(line if line.startswith(" ") else f"error: {line}")
            stream.write("\n")
        if len(lines) > _MAX_LINES:
            stream.write(f"error: {len(lines) - _MAX_LINES} more like these\n")
    if os.environ.get(LEVEL_VARIABLE, "").upper() == "DEBUG":
        stream.write("".join(traceback.format_exception(error)))
    return BAD_INPUT if isinstance(error, InvalidInput) else FAILED


def _of_path(error: OSError) -> Exception:
    """A path that the system refuses is wrong input of the user; the original error keeps its trace."""
    if error.filename is not None:
        reason = "it is not a folder" if isinstance(error, FileExistsError) else error.strerror
        fix = f"cannot be used: {reason}; choose another folder with --state"
        return InvalidInput(os.fsdecode(error.filename), fix).with_traceback(error.__traceback__)
    if error.errno in _NO_ROOM:  # such a write names no path: mostly it is the output's
        full = PacelineError(f"the output or a file cannot be written: {error.strerror}")
        return full.with_traceback(error.__traceback__)
    return error


if __name__ == "__main__":
    app()
