"""The bundle itself: files up to a size each and in all, and an index of what is there, cut or missing and why."""

import io
import json
import os
import tarfile
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from paceline_core.errors import InvalidInput

FILE_LIMIT: Final = 8 << 20
TOTAL_LIMIT: Final = 48 << 20


class Archive:
    """Collects in memory, writes once; `about` leads the index."""

    def __init__(self, about: Mapping[str, Any], made: datetime, total: int = TOTAL_LIMIT) -> None:
        self._about = dict(about)
        self._made = made
        self._left = total
        self._files: dict[str, bytes] = {}
        self._index: dict[str, dict[str, Any]] = {}

    def add(self, path: str, text: str) -> None:
        """Put a file in; what is over a limit is cut, and the index says so."""
        data = text.encode()
        stored = data[: min(FILE_LIMIT, self._left)]
        self._left -= len(stored)
        self._files[path] = stored
        self._index[path] = {
            "bytes": len(stored),
            **({"cut": f"of {len(data)} bytes"} if len(stored) < len(data) else {}),
        }

    def missing(self, path: str, reason: str) -> None:
        """Say what is not there."""
        self._index[path] = {"missing": reason}

    @property
    def gaps(self) -> int:
        """How many pieces are missing."""
        return sum("missing" in entry for entry in self._index.values())

    def index(self) -> dict[str, Any]:
        """What is there and what is not, by path."""
        return {**self._about, "entries": dict(sorted(self._index.items()))}

    def write(self, path: Path) -> None:
        """The tar.gz, readable by its owner alone, never over an existing file. Raises InvalidInput."""
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
