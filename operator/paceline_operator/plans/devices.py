"""Accelerators of a service's pools by AcceleratorProfiles: which are unknown, and what they cost."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from paceline_core.errors import PacelineError
from paceline_core.kube.cluster import Manifest
from paceline_core.objects import AcceleratorProfile, read
from paceline_planner.hardware import CATALOGUE, Accelerator, from_profile

Profiles = Mapping[str, Manifest] | None
"""By name; None where they may not be read, so that nothing can be said of what is not built in."""


def find_device(profiles: Profiles) -> Callable[[str], Accelerator | None]:
    """Accelerators by name: the profile's if there is one, all of it, else the built-in one."""

    def find(name: str) -> Accelerator | None:
        manifest = (profiles or {}).get(name)
        if manifest is None:
            return CATALOGUE.get(name)
        try:
            profile = read(AcceleratorProfile, manifest)
            return from_profile(name, profile.spec)
        except (PacelineError, ValueError):
            return None

    return find


def device_marks(service: Manifest, profiles: Profiles) -> tuple[object, ...]:
    """Marks that change where a judgement of a service's accelerators holds no more; cheap for built-in ones."""
    if profiles is None:
        return ()
    spec = _map(service.get("spec"))
    priced = _map(_map(spec.get("scaling")).get("budget")).get("dollarsPerHour") is not None
    marks: list[object] = []
    for name in _named(spec):
        if priced or name not in CATALOGUE:
            manifest = profiles.get(name)
            marks.append((name, manifest and manifest["metadata"].get("generation", 0)))
    return tuple(marks)


def _named(spec: Mapping[str, Any]) -> Iterator[str]:
    """Accelerators of pools, and the emulated one, which has a price too."""
    pools = spec.get("pools")
    for pool in pools if isinstance(pools, list) else ():
        if isinstance(name := _map(pool).get("accelerator"), str):
            yield name
    if isinstance(name := _map(_map(spec.get("engine")).get("emulate")).get("accelerator"), str):
        yield name


def _map(part: object) -> Mapping[str, Any]:
    return part if isinstance(part, dict) else {}
