"""The trust file: public keys of gateway and autoscaler by key id, read again when it changes.

The operator (or the local supervisor) rewrites it on rotation. A file that cannot be read keeps the keys of the last
one that could: losing trust would cut the worker off from its gateway.
"""

import binascii
from pathlib import Path

import yaml

from paceline_core.auth import HopVerifier
from paceline_core.clock import Clock
from paceline_core.telemetry import get_logger

_log = get_logger(__name__)


class TrustFile:
    """Verifies hop tokens for one audience. Without a path nobody is trusted."""

    def __init__(self, path: Path | None, audience: str, clock: Clock) -> None:
        self._path = path
        self._audience = audience
        self._clock = clock
        self._version: tuple[int, int] | None = None
        self._verifier = HopVerifier({}, audience)

    def verify(self, token: str) -> bool:
        """Whether `token` is a valid hop to this audience, now."""
        if not token or self._path is None:
            return False
        self._refresh(self._path)
        return self._verifier.verify(token, self._clock.utc()) is not None

    def _refresh(self, path: Path) -> None:
        try:
            status = path.stat()
            version = (status.st_mtime_ns, status.st_ino)
            if version == self._version:
                return
            self._version = version
            self._verifier = HopVerifier(_entries(path), self._audience)
        except (OSError, ValueError, TypeError, yaml.YAMLError, binascii.Error) as error:
            _log.warning("the trust file cannot be read; the last keys stay", extra={"reason": str(error)})


def _entries(path: Path) -> dict[str, str]:
    data = yaml.safe_load(path.read_text())
    if not isinstance(data, dict):
        raise TypeError(f"{path} must map key ids to public keys")
    return {str(name): str(value) for name, value in data.items()}
