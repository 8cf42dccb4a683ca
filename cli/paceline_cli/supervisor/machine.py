"""What a valid service asks for that `paceline up` cannot give on this machine: refused by field, before any start."""

from collections.abc import Iterator
from pathlib import Path

from paceline_core.launch import unsupported, wrong_filters
from paceline_core.objects import Problem, ResolvedService
from paceline_planner import emulation

FILE = "file://"


def refusals(service: ResolvedService) -> Iterator[Problem]:
    """Every reason, in the order of causes: the filters, the version, a missing cluster, the catalogue, the disk."""
    yield from wrong_filters(service)
    yield from unsupported(service)
    yield from _clusterbound(service)
    yield from emulation.refusals(service)
    yield from _missing(service)


def _clusterbound(service: ResolvedService) -> Iterator[Problem]:
    for index, variable in enumerate(service.runtime.env):
        if variable.value_from is not None:
            field = f"spec.runtime.env[{index}].valueFrom"
            yield Problem(field, "local mode has no Secrets or ConfigMaps; write the value itself as `value`")


def _missing(service: ResolvedService) -> Iterator[Problem]:
    source = service.model.source
    folder = Path(source.removeprefix(FILE))
    if source.startswith(FILE) and not service.emulated and not folder.is_dir():
        yield Problem("spec.model.source", f"{folder} is not a folder on this machine; put the model's files there")
