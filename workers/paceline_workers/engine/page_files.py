"""KV pages as files in one folder; threads write and read them, whole or not at all.

A file is a header (magic, length and blake2b-128 of the rest) and a page's bytes. It is written under a temporary name
and renamed. A file with any error is a miss when it is read, and is removed. Its name is the page's digest, which
covers all tokens up to the page's end; the folder's name covers everything else that the bytes depend on (model, types,
attention_window), so a later engine finds the files of an earlier one. A lock reserves a folder for one engine; folders
without an owner are removed, so that `limit` bounds the disk space.

The caller never waits: `save` drops a page if too much is unwritten, and `fetch` reports results through `arrived`.
Only the owner may read the files: keys and values reveal their prompts.
Known holes: files are not synced: a power cut may lose some, but never makes one wrong. A disk that has become slower
than computing is not tried again before the next start; one slow read is not enough, as each counts at most double.
"""

import contextlib
import fcntl
import os
import re
import shutil
import struct
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from pathlib import Path
from queue import Empty, SimpleQueue

from paceline_core.errors import InvalidInput
from paceline_core.telemetry import get_logger
from paceline_workers.engine.timer import SystemTimer, quickest

ROOM = 256 << 20
"""The most bytes that may be unwritten at once, and the most that may be read but unused."""
_MAGIC = b"plkv0001"
_HEADER = struct.Struct("<8sQ16s")
_FOLDER = re.compile(r"[0-9a-f]{32}\.kv")
_FILE = re.compile(r"[0-9a-f]{32}")
_BLOCK = 4096
_RECALL = 0.9
"""The weight of the earlier estimate of `read_seconds` when a page has been read."""

_log = get_logger(__name__)


def file_bytes(page_bytes: int) -> int:
    """The disk space of one page's file, in whole blocks of the size that nearly all file systems use."""
    return -(-(_HEADER.size + page_bytes) // _BLOCK) * _BLOCK


class PageFiles:
    """One folder's files, at most `limit` at the start; `known`: digests that have a file, oldest first.

    `read_seconds`: the time to read a page.
    """

    def __init__(self, folder: Path, page_bytes: int, limit: int, lock: int) -> None:
        self.limit = limit
        self._folder = folder
        self._lock = lock
        self._size = _HEADER.size + page_bytes
        self._room = max(ROOM // page_bytes, 1)
        self._writer = ThreadPoolExecutor(1, "page-writer")
        self._reader = ThreadPoolExecutor(1, "page-reader")
        self._unwritten: dict[bytes, bytes] = {}
        self._read: dict[bytes, bytearray | None] = {}
        self._writes = True
        self._arrived: SimpleQueue[tuple[bytes, bool]] = SimpleQueue()
        self.known = self._scan()
        self.read_seconds = self._time(page_bytes)

    @classmethod
    def open(cls, root: Path, fingerprint: bytes, page_bytes: int, limit: int) -> "PageFiles | None":
        """The files of one kind of page under `root`; None if another engine owns them. Raises InvalidInput."""
        folder = root / f"{blake2b(fingerprint, digest_size=16).hexdigest()}.kv"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = _lock(folder)
            if lock is None:
                _log.warning("another engine has the pages on disk; this one goes without", extra={"path": str(folder)})
                return None
            _sweep(root, folder)
            return cls(folder, page_bytes, limit, lock)
        except OSError as error:
            raise InvalidInput("engine.disk_path", f"{folder} cannot be used ({error}); name another folder") from None

    def save(self, digest: bytes, data: bytes) -> None:
        """Write a page soon, unless too many already wait for that."""
        if len(self._unwritten) < self._room:
            self._unwritten[digest] = data
            self._writer.submit(self._write, digest, data)

    def erase(self, digest: bytes) -> None:
        """Remove a page's file, after all earlier writes."""
        self._writer.submit(self._remove, digest)

    def fetch(self, digests: Iterable[bytes]) -> set[bytes]:
        """Begin to read these; returns those that `arrived` will report, fewer if there is not enough room."""
        begun = set()
        for digest in digests:
            if self._read.get(digest) is not None:
                continue
            if digest not in self._read:
                if len(self._read) >= self._room:
                    break
                self._read[digest] = None
                self._reader.submit(self._load, digest)
            begun.add(digest)
        return begun

    def arrived(self) -> list[tuple[bytes, bool]]:
        """Pages read since the last call, and whether each is good; good pages wait for `take`."""
        found = []
        with contextlib.suppress(Empty):
            while True:
                found.append(self._arrived.get_nowait())
        return found

    def take(self, digest: bytes) -> bytearray:
        """The bytes of a good page that has arrived; raises KeyError if there are none."""
        data = self._read.pop(digest)
        if data is None:
            raise KeyError(digest)
        return data

    def discard(self, digest: bytes) -> None:
        """Drop a page that has arrived."""
        self._read.pop(digest, None)

    def close(self) -> None:
        """Finish writing and release the folder to other engines; the end of the process does the same."""
        for pool in (self._writer, self._reader):
            pool.shutdown()
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    # --- in the threads

    def _write(self, digest: bytes, data: bytes) -> None:
        beside = self._folder / f"{digest.hex()}.new"
        try:
            with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(_HEADER.pack(_MAGIC, len(data), _sum(data)))
                file.write(data)
            beside.rename(self._path(digest))
            self._writes = True
        except OSError as error:
            if self._writes:
                _log.warning("pages cannot be written to disk", extra={"reason": str(error)})
            self._writes = False
            with contextlib.suppress(OSError):
                beside.unlink()
        finally:
            self._unwritten.pop(digest, None)

    def _remove(self, digest: bytes) -> None:
        with contextlib.suppress(OSError):
            self._path(digest).unlink()

    def _load(self, digest: bytes) -> None:
        begin = time.perf_counter()
        data = self._page(digest)
        seconds = min(time.perf_counter() - begin, 2 * self.read_seconds)
        self.read_seconds = _RECALL * self.read_seconds + (1 - _RECALL) * seconds
        if data is None:
            self._read.pop(digest, None)
            self._remove(digest)
        else:
            self._read[digest] = data
        self._arrived.put((digest, data is not None))

    def _page(self, digest: bytes) -> bytearray | None:
        if (unwritten := self._unwritten.get(digest)) is not None:
            return bytearray(unwritten)
        try:
            content = bytearray(self._path(digest).read_bytes())
        except OSError:
            return None
        if len(content) != self._size:
            return None
        magic, length, checksum = _HEADER.unpack_from(content)
        data = content[_HEADER.size :]
        return data if (magic, length, checksum) == (_MAGIC, len(data), _sum(data)) else None

    # --- at the start

    def _scan(self) -> list[bytes]:
        """Digests of the existing files, oldest first; removes those beyond the limit and incomplete ones."""
        found = []
        for path in self._folder.iterdir():
            if _FILE.fullmatch(path.name) and (status := path.stat()).st_size == self._size:
                found.append((status.st_mtime_ns, bytes.fromhex(path.name)))
            elif path.name != _LOCK:
                path.unlink()
        digests = [digest for _, digest in sorted(found)]
        for digest in digests[: -self.limit]:
            self._remove(digest)
        return digests[-self.limit :]

    def _time(self, page_bytes: int) -> float:
        """Seconds to read a page that was just written: the shortest possible time; every later read corrects it."""
        digest, data = bytes(16), bytes(page_bytes)
        self._write(digest, data)
        seconds = quickest(lambda: self._page(digest), SystemTimer())
        self._remove(digest)
        return seconds

    def _path(self, digest: bytes) -> Path:
        return self._folder / digest.hex()


_LOCK = "lock"


def _sum(data: bytes | bytearray) -> bytes:
    return blake2b(data, digest_size=16).digest()


def _lock(folder: Path) -> int | None:
    """A descriptor that holds the folder's lock until this process ends; None if another process holds it."""
    descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _sweep(root: Path, own: Path) -> None:
    """Remove page folders that no engine has locked."""
    for folder in root.iterdir():
        if folder != own and _FOLDER.fullmatch(folder.name) and (descriptor := _lock(folder)) is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(descriptor)
