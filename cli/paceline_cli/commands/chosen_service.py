"""One service of a file of manifests, with the accelerators that are defined beside it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline_core.errors import InvalidInput
from paceline_core.manifests import ParsedManifest, load_manifests
from paceline_core.objects import FieldError, InferenceService, ManifestError, ResolvedService, resolve
from paceline_local.manifests import unservable
from paceline_local.preflight import accelerators
from paceline_planner.hardware import Accelerator


@dataclass(frozen=True, slots=True)
class ChosenService:
    manifest: ParsedManifest
    beside: Sequence[ParsedManifest]

    @property
    def service(self) -> ResolvedService:
        assert isinstance(self.manifest.found, InferenceService)
        return resolve(self.manifest.found)

    @property
    def accelerators(self) -> Mapping[str, Accelerator]:
        """By name; a profile of the file before a built-in one."""
        return accelerators(self.beside)


def chosen_service(
    file: Path, name: str | None, problems: Callable[[Sequence[ParsedManifest]], Iterable[FieldError]] = unservable
) -> ChosenService:
    """The only service of the file, or that of the name. Raises InvalidInput with every fault of the file.

    `problems`: what valid manifests are refused for besides.
    """
    found = load_manifests(file)
    if faults := [*found.faults, *problems(found.manifests)]:
        raise ManifestError(faults)
    by_key = {one.found.key: one for one in found.manifests if isinstance(one.found, InferenceService)}
    if not by_key:
        raise InvalidInput(str(file), "holds no InferenceService; add one")
    chosen = [one for key, one in by_key.items() if name in (None, key, key.partition("/")[2])]
    if len(chosen) != 1:
        raise InvalidInput("--service", f"name one of the services of {file}: {', '.join(by_key)}")
    return ChosenService(chosen[0], found.manifests)
