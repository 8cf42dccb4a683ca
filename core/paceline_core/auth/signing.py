"""The sending side of internal tokens, and key files that change while a process runs.

Signing keys and JWK sets are read again when they are rewritten. A rotation replaces the file (a mounted Secret does it
by swapping a symbolic link), so a change shows in its times, inode and size. If a file is missing or damaged, the last
good content stays in use and one log line names the file: without a key a gateway would be cut off from its workers.
Known hole: a rewrite in place, of the same size, within one tick of the file system's clock, is not noticed.
"""

import base64
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from paceline_core.errors import InvalidInput
from paceline_core.telemetry import FaultLog, get_logger

ALGORITHM: Final = "EdDSA"
LIFETIME_S = 300
_KEY_BYTES: Final = 32

T = TypeVar("T")
_FAULT = "a key file cannot be used; its last content stays"
_log = get_logger(__name__)


def new_signing_key() -> bytes:
    return Ed25519PrivateKey.generate().private_bytes_raw()


def read_signing_key(path: Path, field: str = "signing_key") -> bytes:
    """A private key of 32 raw bytes. Raises InvalidInput naming the field, the file and the fix."""
    try:
        key = path.read_bytes()
    except OSError as error:
        raise InvalidInput(field, f"{path} cannot be read: {error.strerror}") from None
    if len(key) != _KEY_BYTES:
        raise InvalidInput(field, f"{path} holds {len(key)} bytes; a private key has {_KEY_BYTES}")
    return key


def public_half(private: bytes) -> tuple[str, str]:
    """`(key id, public key in base64)`."""
    public = Ed25519PrivateKey.from_private_bytes(private).public_key()
    raw = public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return base64.b32encode(raw[:5]).decode().lower(), base64.b64encode(raw).decode()


class Signer(Protocol):
    def token(self, audience: str, now: datetime) -> str: ...


class TokenSigner:
    """Makes tokens, and reuses each for half of its lifetime."""

    def __init__(self, private: bytes, issuer: str) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(private)
        self._header = {"kid": public_half(private)[0]}
        self._issuer = issuer
        self._made: dict[str, tuple[int, str]] = {}

    def token(self, audience: str, now: datetime) -> str:
        moment = int(now.timestamp())
        expires, text = self._made.get(audience, (0, ""))
        if expires - moment < LIFETIME_S // 2:
            expires = moment + LIFETIME_S
            claims = {"iss": self._issuer, "aud": audience, "exp": expires}
            text = jwt.encode(claims, self._key, ALGORITHM, self._header)
            self._made[audience] = (expires, text)
        return text


class ReloadedFile(Generic[T]):
    """The parsed content of a file; `read` raises InvalidInput for invalid content, OSError if there is no file."""

    def __init__(self, path: Path, read: Callable[[Path], T], first: T) -> None:
        self._path = path
        self._read = read
        self._value = first
        self._version: tuple[int, int, int, int] | None = None
        self._complaints = FaultLog(_log)

    def current(self) -> T:
        """The file's content now, or the last one that could be read."""
        try:
            status = self._path.stat()
            version = (status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size)
            if version != self._version:
                self._version = None  # retry an unreadable file; an invalid one only after it has changed
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
    """Makes internal tokens with the private key in a file. Raises InvalidInput if there is none at the start."""

    def __init__(self, path: Path, issuer: str) -> None:
        def read(path: Path) -> TokenSigner:
            return TokenSigner(read_signing_key(path), issuer)

        self._file = ReloadedFile(path, read, read(path))

    def token(self, audience: str, now: datetime) -> str:
        return self._file.current().token(audience, now)
