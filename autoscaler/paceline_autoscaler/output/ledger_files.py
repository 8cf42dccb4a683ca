"""The files of a ledger: for each service `<namespace>.<name>.jsonl` and an older one, which ends in `.1`.

A full file becomes the older one, and the new file begins with the records that its entries refer to, so that each file
can be read by itself. A new process appends, and writes its records once more.

Two bounds hold: FILE_LIMIT for one file, and `limit` for all of them together, because a pod is evicted when its volume
overflows. Near `limit` files are rotated at an equal part of it, and the largest older files are deleted; if there are
none, because many services are new, the largest current file loses its older half. Autoscalers may share a directory,
because only the one that leads writes.
"""

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from errno import ENOSPC
from os import SEEK_END, strerror
from pathlib import Path

from paceline_autoscaler.output.ledger_entry import (
    RECORD_START,
    LedgerEntry,
    LedgerRecord,
    Records,
    add_record,
    decode,
    decode_entry,
)
from paceline_core.errors import InvalidInput

SUFFIX, OLDER = ".jsonl", ".1"
FILE_LIMIT = 20 << 20


@dataclass(slots=True)
class _ServiceFiles:
    """Bytes in both files, and the digests of the records that this process has written into the current one."""

    current: int = 0
    older: int = 0
    digests: set[str] = field(default_factory=set)
    opened: bool = False


class LedgerFiles:
    """Appends to the files in `directory`, which are never larger than `limit` bytes together."""

    def __init__(self, directory: Path, limit: int, file_limit: int = FILE_LIMIT) -> None:
        self.directory = directory
        self._limit = limit
        self._file_limit = min(file_limit, limit // 2)
        self._files = {service: _ServiceFiles(*sizes) for service, sizes in _listed(directory).items()}

    def append(self, service: str, records: tuple[LedgerRecord, ...], entry: bytes) -> None:
        """Write an entry, and its records if the file lacks them. Raises OSError if that fails or is too much."""
        files, path = self._opened(service), file_of(self.directory, service)
        text = _text(files, records, entry)
        if files.current and files.current + len(text) > self._rotated_at(len(text)):
            path.replace(older(path))
            files.current, files.older, files.digests = 0, files.current, set()
            text = _text(files, records, entry)
        self._make_room(len(text))
        _append(path, text, files.current)
        files.current += len(text)
        files.digests.update(record.digest for record in records)

    def newest(self, service: str) -> Iterator[LedgerEntry]:
        """The entries of both files, newest first, without what cannot be read; twice if they are rotated meanwhile."""
        path = file_of(self.directory, service)
        for each in (path, older(path)):
            yield from _newest(each)

    def delete(self, service: str) -> None:
        """Remove the files of a deleted service. Raises OSError."""
        path = file_of(self.directory, service)
        for each in (path, older(path)):
            each.unlink(missing_ok=True)
        self._files.pop(service, None)

    def delete_others(self, alive: Collection[str]) -> None:
        """Remove the files of all services that are not in `alive`. Raises OSError."""
        for service in _listed(self.directory).keys() - set(alive):
            self.delete(service)

    def _opened(self, service: str) -> _ServiceFiles:
        """The sizes, measured again if an earlier process or a user has changed the file."""
        files, path = self._files.setdefault(service, _ServiceFiles()), file_of(self.directory, service)
        if not files.opened or _size(path) != files.current:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            _end_line(path)
            files.current, files.older = _size(path), _size(older(path))
            files.digests, files.opened = set(), True
        return files

    def _over(self, more: int) -> bool:
        return sum(files.current + files.older for files in self._files.values()) + more > self._limit

    def _rotated_at(self, more: int) -> int:
        equal_part = self._limit // (2 * len(self._files))
        return min(equal_part, self._file_limit) if self._over(more) else self._file_limit

    def _make_room(self, more: int) -> None:
        """Delete older files, the largest first, then halve current ones. Raises OSError if that is not enough."""
        while self._over(more):
            service, files = max(self._files.items(), key=lambda each: each[1].older)
            if files.older:
                older(file_of(self.directory, service)).unlink(missing_ok=True)
                files.older = 0
            elif not self._halve_largest():
                raise OSError(ENOSPC, f"the files have the {self._limit} bytes that are allowed")

    def _halve_largest(self) -> bool:
        """Remove the older half of the entries of the largest current file; False if it has one entry at most."""
        service, files = max(self._files.items(), key=lambda each: each[1].current)
        path = file_of(self.directory, service)
        lines = path.read_bytes().splitlines(keepends=True) if files.current else []
        entries = [line for line in lines if not line.startswith(RECORD_START)]
        if len(entries) < 2:
            return False
        left_out = set(entries[: len(entries) // 2])
        kept = b"".join(line for line in lines if line not in left_out)
        new = path.with_suffix(".new")
        new.write_bytes(kept)
        new.replace(path)
        files.current = len(kept)
        return True


def file_of(directory: Path, service: str) -> Path:
    """The current file of a service, `namespace/name`."""
    return directory / f"{service.replace('/', '.', 1)}{SUFFIX}"


def older(path: Path) -> Path:
    """The file that a current one replaced."""
    return path.with_name(path.name + OLDER)


def read(path: Path) -> list[LedgerEntry | InvalidInput]:
    """The entries of a file, and in place of damaged lines an error naming it. Raises InvalidInput without a file."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise InvalidInput(str(path), f"cannot be read: {error.strerror}") from None
    return list(decode(iter(lines), str(path)))


def _listed(directory: Path) -> dict[str, tuple[int, int]]:
    """Bytes of the current and of the older file by service."""
    names = {path.name.removesuffix(OLDER) for path in directory.glob(f"*{SUFFIX}*")}
    paths = [directory / name for name in names if name.endswith(SUFFIX) and "." in name.removesuffix(SUFFIX)]
    return {path.stem.replace(".", "/", 1): (_size(path), _size(older(path))) for path in paths}


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _text(files: _ServiceFiles, records: tuple[LedgerRecord, ...], entry: bytes) -> bytes:
    lines = [record.line for record in records if record.digest not in files.digests]
    return b"".join(line + b"\n" for line in (*lines, entry))


def _end_line(path: Path) -> None:
    """End the line that a killed process did not end, so that only that one is damaged."""
    if _size(path):
        with path.open("r+b") as file:
            file.seek(-1, SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")


def _append(path: Path, text: bytes, size: int) -> None:
    """Add whole lines to a file of `size` bytes; if there is no space for all of them, none is added."""
    with path.open("ab", buffering=0) as file:
        if file.write(text) < len(text):
            file.truncate(size)
            raise OSError(ENOSPC, strerror(ENOSPC))


def _newest(path: Path) -> Iterator[LedgerEntry]:
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return
    records: Records = {}
    for line in lines:
        if line.startswith(RECORD_START):
            with suppress(ValueError):
                add_record(line, records)
    for line in reversed(lines):
        if not line.startswith(RECORD_START):
            with suppress(ValueError):
                yield decode_entry(line, records)
