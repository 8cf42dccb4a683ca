"""Key files that change under a running process: signing keys and JWK sets, read again when they are rewritten.

Whoever rotates a key replaces the file (a mounted Secret does it by swapping a symbolic link), so its times, inode
and size tell. A file that is missing or damaged keeps the last good content and is named in the log once: losing a key
would cut a gateway off from its workers. Known hole: a rewrite in place, of the same size, within one tick of the file
system's clock, is not seen.
"""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Generic, TypeVar

from paceline_core.auth.internal_token import (
    InvalidToken,
    JwkSet,
    TokenClaims,
    TokenSigner,
    TokenVerifier,
    jwk_set,
    parse_jwk_set,
    read_signing_key,
)
from paceline_core.clock import Clock
from paceline_core.errors import InvalidInput
from paceline_core.telemetry import FaultLog, get_logger

T = TypeVar("T")
_FAULT = "a key file cannot be used; its last content stays"
_log = get_logger(__name__)


class ReloadedFile(Generic[T]):
    """What `read` makes of a file; `read` raises InvalidInput for one that it cannot use, OSError for one not there."""

    def __init__(self, path: Path, read: Callable[[Path], T], first: T) -> None:
        self._path = path
        self._read = read
        self._value = first
        self._version: tuple[int, int, int, int] | None = None
        self._complaints = FaultLog(_log)

    def current(self) -> T:
        """The file's content now, or the last that could be read."""
        try:
            status = self._path.stat()
            version = (status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size)
            if version != self._version:
                self._version = None  # what could not be read is tried again, what is wrong only when it has changed
                try:
                    self._value = self._read(self._path)
                except InvalidInput:
                    self._version = version
                    raise
                self._version = version
                self._complaints.end(_FAULT)
        except (OSError, InvalidInput) as error:
            self._complaints.begin(_FAULT, str(error))
        return self._value


class FileSigner:
    """Makes internal tokens with the private key in a file. Raises InvalidInput when there is none at first."""

    def __init__(self, path: Path, issuer: str) -> None:
        def read(path: Path) -> TokenSigner:
            return TokenSigner(read_signing_key(path), issuer)

        self._file = ReloadedFile(path, read, read(path))

    def token(self, audience: str, now: datetime) -> str:
        return self._file.current().token(audience, now)


class TrustBundle:
    """Verifies internal tokens for one audience by a JWK set in a file. Without a path no token is believed.

    A path that leads nowhere is logged at once, not only when a gateway is refused.
    """

    def __init__(self, path: Path | None, audience: str, clock: Clock) -> None:
        empty = TokenVerifier(jwk_set([]), audience)
        self._file = ReloadedFile(path, lambda path: TokenVerifier(_keys(path), audience), empty) if path else None
        self._clock = clock
        if self._file is not None:
            self._file.current()

    @property
    def known(self) -> bool:
        return self._file is not None and self._file.current().known

    def claims(self, token: str) -> TokenClaims | None:
        """The claims of a valid token for this audience, else None; the log says at level debug why not."""
        if not token or self._file is None:
            return None
        try:
            return self._file.current().verify(token, self._clock.utc())
        except InvalidToken as error:
            _log.debug("an internal token is refused", extra={"reason": str(error)})
            return None

    def verify(self, token: str) -> bool:
        return self.claims(token) is not None


def _keys(path: Path) -> JwkSet:
    try:
        return parse_jwk_set(path.read_text())
    except ValueError as error:
        raise InvalidInput(str(path), f"is no JWK set of public keys: {error}") from None
