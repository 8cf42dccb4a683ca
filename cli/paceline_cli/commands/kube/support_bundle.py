"""`kubectl paceline support-bundle`: objects, Events, logs and metrics for support, without secrets, as one file.

Every piece is fetched within one time limit, redacted and added to the archive; a failed one is a line of the index.
Objects come first, so that every value to hide is known before the first text is written. Files are bounded each and in
total; the index lists what is there, truncated or missing, and why.
"""

import asyncio
import io
import json
import os
import tarfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer

from paceline_cli.commands import command_app
from paceline_cli.kube.bundle.redact import Redactor
from paceline_cli.kube.bundle.sources import VERSIONS, Listing, Reading, concerned, left_out, listings, readings
from paceline_cli.kube.services import services
from paceline_cli.kube.session import SYSTEM, Context, Kubeconfig, System, place, run, text
from paceline_cli.ui.detail import event_time
from paceline_core import __version__
from paceline_core.clock import Clock, SystemClock, rfc3339
from paceline_core.errors import Forbidden, InvalidInput, PacelineError
from paceline_core.kube.client.client import KubeClient
from paceline_core.kube.client.resource import RESOURCES
from paceline_core.kube.cluster import Manifest
from paceline_core.units import counted

app = command_app()


@app.command(
    "support-bundle", help="Collect objects, Events, logs and metrics for support; no Secrets, keys, prompts or values."
)
def support_bundle(  # noqa: PLR0913, PLR0917 - one argument for each option
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Archive to write (.tar.gz).")
    ] = None,
    within: Annotated[float, typer.Option("--within", min=1, max=600, metavar="SECONDS", help="Time limit.")] = 60,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", metavar="NS", help="Namespace to collect. Default: all.")
    ] = "",
    system: System = SYSTEM,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """What cannot be read is listed in the bundle's index.json and fails nothing."""
    clock = SystemClock()
    made = clock.utc()
    file = output or Path(f"paceline-support-bundle-{made:%Y%m%d-%H%M%S}.tar.gz")
    if file.exists():
        raise InvalidInput("--output", f"{file} is there already; name another file")
    where = place(kubeconfig, context, namespace, system)
    archive = Archive({"paceline": __version__, "made": rfc3339(made)}, made)

    async def collect(api: KubeClient) -> None:
        """A first call checks that there is a cluster with paceline: an empty bundle does not help."""
        chosen = namespace
        try:
            await services(api, chosen)
        except Forbidden:
            chosen = where.namespace
        await Collector(api, archive, clock, Scope((chosen,), where.system, within)).collect()

    run(where, collect)
    archive.write(file)
    gaps = f"; {counted(archive.gaps, 'piece is', 'pieces are')} missing, index.json says why" if archive.gaps else ""
    typer.echo(f"{file}{gaps}")


FILE_LIMIT: Final = 8 << 20
TOTAL_LIMIT: Final = 48 << 20


class Archive:
    """Collects in memory, writes once; `about` is the start of the index."""

    def __init__(self, about: Mapping[str, Any], made: datetime, total: int = TOTAL_LIMIT) -> None:
        self._about = dict(about)
        self._made = made
        self._left = total
        self._files: dict[str, bytes] = {}
        self._index: dict[str, dict[str, Any]] = {}

    def add(self, path: str, text: str) -> None:
        """Add a file; a longer one is truncated, as the index records."""
        data = text.encode()
        stored = data[: min(FILE_LIMIT, self._left)]
        self._left -= len(stored)
        self._files[path] = stored
        self._index[path] = {
            "bytes": len(stored),
            **({"cut": f"of {len(data)} bytes"} if len(stored) < len(data) else {}),
        }

    def missing(self, path: str, reason: str) -> None:
        self._index[path] = {"missing": reason}

    @property
    def gaps(self) -> int:
        return sum("missing" in entry for entry in self._index.values())

    def index(self) -> dict[str, Any]:
        return {**self._about, "entries": dict(sorted(self._index.items()))}

    def write(self, path: Path) -> None:
        """Write the tar.gz, readable only by its owner, never over an existing file. Raises InvalidInput."""
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            raise InvalidInput("--output", f"{path} cannot be made: {error.strerror}; name another file") from None
        files = {"index.json": json.dumps(self.index(), indent=1).encode(), **dict(sorted(self._files.items()))}
        with os.fdopen(handle, "wb") as raw, tarfile.open(fileobj=raw, mode="w:gz") as tar:
            for name, data in files.items():
                entry = tarfile.TarInfo(f"{path.name.partition('.')[0]}/{name}")
                entry.size, entry.mode, entry.mtime = len(data), 0o600, int(self._made.timestamp())
                tar.addfile(entry, io.BytesIO(data))


T = TypeVar("T")
AT_ONCE: Final = 6
TEXT_LIMIT: Final = 1 << 20
EVENTS: Final = 1000


@dataclass(frozen=True, slots=True)
class Scope:
    """The namespace to collect (empty: all), paceline's own, and the time limit."""

    namespaces: tuple[str, ...]
    system: str
    within_s: float


class Collector:
    """Collects once into one archive."""

    def __init__(self, api: KubeClient, archive: Archive, clock: Clock, scope: Scope) -> None:
        self._api = api
        self._archive = archive
        self._clock = clock
        self._scope = scope
        self._deadline = clock.monotonic() + scope.within_s
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._redactor = Redactor()

    async def collect(self) -> None:
        wanted = list(listings(self._scope.namespaces, self._scope.system))
        found = await asyncio.gather(*(self._list(listing) for listing in wanted))
        self._redactor.learn(found)
        services = _of(wanted, found, "InferenceService")
        pods = _of(wanted, found, "Pod")
        for listing, items in zip(wanted, found, strict=True):
            if items is None:
                continue
            kept = items
            if listing.kind == "Event":
                ours = [event for event in items if concerned(event, self._scope.system, services)]
                kept = sorted(ours, key=event_time)[-EVENTS:]
            self._archive.add(listing.path, self._redactor.objects(kept))
        for path, reason in left_out(pods, services):
            self._archive.missing(path, reason)
        await asyncio.gather(*(self._read(reading) for reading in (*VERSIONS, *readings(pods, services))))

    async def _list(self, listing: Listing) -> list[Manifest] | None:
        kind, namespace, selector = RESOURCES[listing.kind], listing.namespace, listing.selector
        return await self._piece(listing.path, lambda: self._api.list(kind, namespace, selector=selector))

    async def _read(self, reading: Reading) -> None:
        url, params = reading.url, dict(reading.params)
        found = await self._piece(reading.path, lambda: text(self._api, url, params, limit=TEXT_LIMIT))
        if found is not None:
            self._archive.add(reading.path, self._redactor.log(found))

    async def _piece(self, path: str, fetch: Callable[[], Awaitable[T]]) -> T | None:
        """Fetch within the remaining time; a failure becomes a line of the index, and None."""
        try:
            async with self._slots, asyncio.timeout(max(0.0, self._deadline - self._clock.monotonic())):
                return await fetch()
        except TimeoutError:
            self._archive.missing(path, f"the {self._scope.within_s:g} s for the bundle were over")
        except PacelineError as error:
            self._archive.missing(path, self._redactor.text(str(error)))
        return None


def _of(wanted: Sequence[Listing], found: Sequence[list[Manifest] | None], kind: str) -> list[Any]:
    every = [item for listing, items in zip(wanted, found, strict=True) if listing.kind == kind for item in items or ()]
    return list({item["metadata"]["uid"]: item for item in every}.values())
