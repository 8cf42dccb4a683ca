"""Pages as files in one folder: written and read by threads of their own, whole or not at all.

A file is a header (magic, length and blake2b-128 of the rest) and a page's bytes. It is written beside its place and
renamed into it; whatever is wrong with one when it is read makes it a miss, and it is removed. Its name is the page's
digest, which names all tokens up to the page's end; the folder's name stands for all else that the bytes depend on
(model, types, attention_window), so a later engine finds what an earlier one left. A lock keeps a folder to one engine;
folders without an owner are removed, so that `limit` bounds what lies on disk.

Nothing waits here: `save` gives up when too much is unwritten, and `fetch` answers through `arrived`.
Only the owner may read them: keys and values reveal their prompts.
Known holes: nothing is synced, so a power cut may cost files, never their truth. A disk that has become slower than
computing is not tried again before the next start; one slow read does not make it so, since each counts at most double.
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
"""Bytes that may be unwritten at once, and bytes that may have been read and not been used yet."""
_MAGIC = b"plkv0001"
_HEADER = struct.Struct("<8sQ16s")
_FOLDER = re.compile(r"[0-9a-f]{32}\.kv")
_FILE = re.compile(r"[0-9a-f]{32}")
_BLOCK = 4096
_RECALL = 0.9
"""Of an earlier estimate of `read_seconds`, when a page has been read."""

_log = get_logger(__name__)


def file_bytes(page_bytes: int) -> int:
    """What the file of one page takes of a disk, in whole blocks as nearly all file systems have them."""
    return -(-(_HEADER.size + page_bytes) // _BLOCK) * _BLOCK


class PageFiles:
    """One folder's files, at most `limit` to begin with; `known`: digests that have one, oldest first.

    `read_seconds`: what reading a page takes.
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
        """The files of one kind of page under `root`; None if another engine has them. Raises InvalidInput."""
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
        """Write a page some time soon, unless too many are waiting for that already."""
        if len(self._unwritten) < self._room:
            self._unwritten[digest] = data
            self._writer.submit(self._write, digest, data)

    def erase(self, digest: bytes) -> None:
        """Remove a page's file, after what was to be written before."""
        self._writer.submit(self._remove, digest)

    def fetch(self, digests: Iterable[bytes]) -> set[bytes]:
        """Begin to read these; returns those that `arrived` will report, fewer if there is no room for more."""
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
        """Pages that have been read since the last call, and whether they are good; these wait for `take`."""
        found = []
        with contextlib.suppress(Empty):
            while True:
                found.append(self._arrived.get_nowait())
        return found

    def take(self, digest: bytes) -> bytearray:
        """The bytes of a good page that arrived; raises KeyError if there are none."""
        data = self._read.pop(digest)
        if data is None:
            raise KeyError(digest)
        return data

    def discard(self, digest: bytes) -> None:
        """A page that arrived will not be taken."""
        self._read.pop(digest, None)

    def close(self) -> None:
        """Finish writing, and let another engine have the folder; the end of the process does the same."""
        for pool in (self._writer, self._reader):
            pool.shutdown()
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    # --- on the threads

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

    # --- at the beginning

    def _scan(self) -> list[bytes]:
        """Digests of the files there, oldest first; those beyond the limit and what was left half written go."""
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
        """Seconds to read a page that has just been written: the least it can take, mended by every read to come."""
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
    """A descriptor that holds the folder's lock, gone with this process; None if another process holds it."""
    descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _sweep(root: Path, own: Path) -> None:
    """Remove folders of pages that no engine holds."""
    for folder in root.iterdir():
        if folder != own and _FOLDER.fullmatch(folder.name) and (descriptor := _lock(folder)) is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(descriptor)
