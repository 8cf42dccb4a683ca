"""`paceline lint`: every fault of the given manifests, as the API server would find them.

A field that this version does not implement is a fault too: the operator would refuse it after the API server accepted
it. Notes fail nothing, unless `--strict` makes faults of them: all except those about what only this machine lacks,
since a file need not be checked where it runs. For each file the first hundred are printed.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from paceline_cli.commands import command_app
from paceline_core.errors import InvalidInput
from paceline_core.manifests import ManifestFile, ParsedManifest, load_manifests
from paceline_core.objects import FieldError
from paceline_local.manifests import idle_routes, refused
from paceline_local.preflight import accelerators, missing_on_host, unsupported_here
from paceline_local.warnings import manifest_warnings
from paceline_planner.service_devices import unmanaged_accelerators

app = command_app()
_MAX_LINES = 100
"""The most faults and notes printed for one file; the others are counted."""


@dataclass(frozen=True, slots=True)
class Findings:
    """The findings for one file, each as `place: field: message`: faults, notes, and what is not implemented.

    `unsupported_here` is part of `faults`, `missing_on_host` (what only this machine cannot serve) of
    `manifest_warnings`.
    """

    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unserved: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()

    def strictly(self) -> "Findings":
        """The same, with notes about the manifests as faults."""
        here = frozenset(self.lacking)
        doubts = tuple(note for note in self.notes if note not in here)
        return replace(self, faults=(*self.faults, *doubts), notes=self.lacking)


@app.command(help="Validate manifests; print every error; exit 1 if there is one.")
def lint(
    files: Annotated[
        list[Path] | None, typer.Argument(help="YAML files of InferenceServices, Tenants, ...; - reads standard input.")
    ] = None,
    more: Annotated[
        list[Path] | None, typer.Option("--file", "-f", metavar="FILE", help="YAML file to check; may be repeated.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail on warnings too, except on what this machine lacks.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check each file; a name in one may refer to an object in another."""
    given = [*(files or ()), *(more or ())]
    if not given:
        raise InvalidInput("FILE", "name at least one file of manifests")
    found = examine(given)
    if strict:
        found = {name: of.strictly() for name, of in found.items()}
    if as_json:
        _print_json(found)
    else:
        _print(found)
    if any(of.faults for of in found.values()):
        raise typer.Exit(1)


def examine(files: Sequence[Path]) -> dict[str, Findings]:
    """Check each file as the API server and local mode do; a name in one may refer to an object in another."""
    surveys = {}
    for file in files:
        try:
            surveys[str(file)] = load_manifests(file)
        except InvalidInput as error:
            surveys[str(file)] = ManifestFile([], [FieldError(error.field, error.message)])
    here = [manifest for found in surveys.values() for manifest in found.manifests]
    sound = not any(found.faults for found in surveys.values())  # else a missing object may be a faulty one
    return {name: _findings(found, here if sound else None) for name, found in surveys.items()}


def _findings(found: ManifestFile, here: Sequence[ParsedManifest] | None) -> Findings:
    own = found.manifests
    known = accelerators(own if here is None else here)
    unmanaged = refused(own, lambda service: unmanaged_accelerators(service, known.get))
    unknown = (*refused(own, unsupported_here), *unmanaged, *idle_routes(own))
    gaps = tuple(f"not served by this version: {problem}" for problem in unknown)
    absent = tuple(f"not served on this machine: {problem}" for problem in refused(own, missing_on_host))
    doubts = () if here is None else tuple(manifest_warnings(own, here))
    return Findings((*map(str, found.faults), *gaps), (*doubts, *absent), gaps, absent)


def _print_json(found: Mapping[str, Findings]) -> None:
    """`more`: the number of a file's faults and notes that are not listed."""
    faults = {name: of.faults[:_MAX_LINES] for name, of in found.items()}
    remarks = {name: of.notes[:_MAX_LINES] for name, of in found.items()}
    gaps = {name: of.unserved[:_MAX_LINES] for name, of in found.items()}
    more = {name: len(of.faults[_MAX_LINES:]) + len(of.notes[_MAX_LINES:]) for name, of in found.items()}
    typer.echo(json.dumps({"files": faults, "notes": remarks, "unserved": gaps, "more": more}, indent=1))


def _print(found: Mapping[str, Findings]) -> None:
    for file, of in found.items():
        for word, lines in (("error", of.faults), ("note", of.notes)):
            for line in lines[:_MAX_LINES]:
                typer.echo(f"{word}: {line}", err=True)
            if more := len(lines[_MAX_LINES:]):
                typer.echo(f"{word}: {file}: {more} more like these", err=True)
        if not of.faults:
            typer.echo(f"{file}: ok")
