"""`paceline lint`: every fault of the given manifests, as the API server would find them.

What the objects may say but this version does not serve is a note, here or on a cluster; so is what only this machine
lacks. Notes fail nothing: a manifest may be written for a version to come.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from paceline_cli.commands import command_app
from paceline_cli.supervisor.notes import notes
from paceline_cli.supervisor.wishes import refused
from paceline_core.errors import InvalidInput
from paceline_core.manifests import Manifest, Survey, survey
from paceline_core.objects import Problem

app = command_app()


@dataclass(frozen=True, slots=True)
class Findings:
    """About one file, each as `place: field: message`: what is wrong, and what is worth a second look."""

    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@app.command(help="Check manifests; print every fault; exit 1 if there is one.")
def lint(
    files: Annotated[list[Path] | None, typer.Argument(help="YAML files of InferenceServices, Tenants, ...")] = None,
    more: Annotated[list[Path] | None, typer.Option("--file", "-f", metavar="FILE", help="One of them.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check each file; what one names may stand in another."""
    given = [*(files or ()), *(more or ())]
    if not given:
        raise InvalidInput("FILE", "name at least one file of manifests")
    found = examine(given)
    if as_json:
        faults = {name: of.faults for name, of in found.items()}
        remarks = {name: of.notes for name, of in found.items()}
        typer.echo(json.dumps({"files": faults, "notes": remarks}, indent=1))
    else:
        _print(found)
    if any(of.faults for of in found.values()):
        raise typer.Exit(1)


def examine(files: Sequence[Path]) -> dict[str, Findings]:
    """Read each file as the API server and as local mode do; what one names may stand in another."""
    surveys = {str(file): _survey(file) for file in files}
    here = [manifest for found in surveys.values() for manifest in found.manifests]
    sound = not any(found.faults for found in surveys.values())  # else what seems to be missing may be what is faulty
    return {
        name: Findings(tuple(map(str, found.faults)), tuple(_notes(found.manifests, here if sound else None)))
        for name, found in surveys.items()
    }


def _survey(file: Path) -> Survey:
    try:
        return survey(file)
    except InvalidInput as error:
        return Survey([], [Problem(error.field, error.message)])


def _notes(own: Sequence[Manifest], here: Sequence[Manifest] | None) -> Iterator[str]:
    if here is not None:
        yield from notes(own, here)
    yield from (f"not served by this version here: {problem}" for problem in refused(own))


def _print(found: Mapping[str, Findings]) -> None:
    for file, of in found.items():
        for word, lines in (("error", of.faults), ("note", of.notes)):
            for line in lines:
                typer.echo(f"{word}: {line}", file=sys.stderr)
        if not of.faults:
            typer.echo(f"{file}: ok")
