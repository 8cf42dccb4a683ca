"""Key files that change under a running process: hop keys and trust files, read again when they are rewritten.

Whoever rotates a key replaces the file (a mounted Secret does it by swapping a symbolic link), so its times, inode
and size tell. A file that is missing or damaged keeps the last good content and is named in the log once: losing a key
would cut a gateway off from its workers. Known hole: a rewrite in place, of the same size, within one tick of the file
system's clock, is not seen.
"""

import binascii
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Generic, TypeVar

import yaml

from paceline_core.auth.hop import Hop, HopSigner, HopVerifier, read_hop_key
from paceline_core.clock import Clock
from paceline_core.errors import InvalidInput
from paceline_core.telemetry import Complaints, get_logger

T = TypeVar("T")
Version = tuple[int, int, int, int]
_FAULT = "a key file cannot be used; its last content stays"
_log = get_logger(__name__)


class WatchedFile(Generic[T]):
    """What `read` makes of a file; `read` raises InvalidInput for one that it cannot use, OSError for one not there."""

    def __init__(self, path: Path, read: Callable[[Path], T], first: T) -> None:
        self._path = path
        self._read = read
        self._kept = first
        self._version: Version | None = None
        self._complaints = Complaints(_log)

    def current(self) -> T:
        """The file's content now, or the last that could be read."""
        try:
            self._refresh()
        except (OSError, InvalidInput) as error:
            self._complaints.begin(_FAULT, str(error))
        return self._kept

    def _refresh(self) -> None:
        status = self._path.stat()
        version = (status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size)
        if version == self._version:
            return
        self._version = None  # what could not be read is tried again, what is wrong only when it has changed
        try:
            self._kept = self._read(self._path)
        except InvalidInput:
            self._version = version
            raise
        self._version = version
        self._complaints.end(_FAULT)


class FileSigner:
    """Makes hop tokens with the private key that lies in a file. Raises InvalidInput when there is none at first."""

    def __init__(self, path: Path, issuer: str) -> None:
        self._file = WatchedFile(path, lambda path: HopSigner(read_hop_key(path), issuer), _first_signer(path, issuer))

    def token(self, audience: str, now: datetime) -> str:
        """A token for `namespace/service`, of the newest key."""
        return self._file.current().token(audience, now)


class TrustFile:
    """Verifies hop tokens for one audience by a file of public keys. Without a path nobody is trusted.

    A path that leads nowhere is told at once, not first when a gateway is not believed.
    """

    def __init__(self, path: Path | None, audience: str, clock: Clock) -> None:
        nobody = HopVerifier({}, audience)
        self._file = WatchedFile(path, lambda path: HopVerifier(_entries(path), audience), nobody) if path else None
        self._clock = clock
        if self._file is not None:
            self._file.current()

    @property
    def known(self) -> bool:
        """Whether anybody is trusted now."""
        return self._file is not None and self._file.current().known

    def hop(self, token: str) -> Hop | None:
        """Who sends this token, if it is a valid hop to this audience, now."""
        if not token or self._file is None:
            return None
        return self._file.current().verify(token, self._clock.utc())

    def verify(self, token: str) -> bool:
        """Whether `token` is a valid hop to this audience, now."""
        return self.hop(token) is not None


def _first_signer(path: Path, issuer: str) -> HopSigner:
    return HopSigner(read_hop_key(path), issuer)


def _entries(path: Path) -> dict[str, str]:
    text = path.read_text()
    try:
        entries: Any = yaml.safe_load(text)
        found = {str(kid): str(key) for kid, key in entries.items()}
        HopVerifier(found, "")
    except (yaml.YAMLError, AttributeError, ValueError, binascii.Error) as error:
        raise InvalidInput(str(path), f"must map key ids to public keys in base64 and their issuers: {error}") from None
    return found
