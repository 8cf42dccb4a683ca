"""`paceline lint`: every fault of the given manifests, as the API server and local mode would find them."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from paceline_cli.commands import command_app
from paceline_core.errors import InvalidInput
from paceline_core.manifests import read_manifests
from paceline_core.objects import ManifestError

app = command_app()


@app.command(help="Check manifests; print every fault; exit 1 if there is one.")
def lint(
    files: Annotated[list[Path], typer.Argument(help="YAML files of InferenceServices, Tenants, ...")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check each file by itself."""
    faults = {str(file): faults_of(file) for file in files}
    if as_json:
        typer.echo(json.dumps({"files": faults}, indent=1))
    else:
        _print(faults)
    if any(faults.values()):
        raise typer.Exit(1)


def faults_of(file: Path) -> list[str]:
    """The faults of one file as `place: field: message`; none when it is fine."""
    try:
        read_manifests(file)
    except ManifestError as error:
        return [str(problem) for problem in error.problems]
    except InvalidInput as error:
        return [str(error)]
    return []


def _print(faults: dict[str, list[str]]) -> None:
    for file, found in faults.items():
        for fault in found:
            typer.echo(f"error: {fault}", file=sys.stderr)
        if not found:
            typer.echo(f"{file}: ok")
