"""`paceline version`."""

import json
import platform
from typing import Annotated

import typer

from paceline_cli.commands import command_app
from paceline_core import __version__

app = command_app()


@app.command(help="Print the version.")
def version(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """The version of paceline and of the Python that runs it."""
    if as_json:
        typer.echo(json.dumps({"paceline": __version__, "python": platform.python_version()}))
    else:
        typer.echo(f"paceline {__version__}")
