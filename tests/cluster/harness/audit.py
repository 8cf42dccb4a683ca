"""Reads the API server's audit log: who wrote what, exactly.

Every write is one line, written before its reply is sent, so a write that a test has seen answered is in the file.
The log holds refused writes too, with their code. Hole: reads are not logged.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Write:
    """One write request and what became of it."""

    user: str
    verb: str
    resource: str
    subresource: str
    namespace: str
    name: str
    code: int
    agent: str


@dataclass(frozen=True, slots=True)
class AuditLog:
    """The log of one run."""

    path: Path

    def mark(self) -> int:
        """The place where the next write will stand."""
        return self.path.stat().st_size if self.path.exists() else 0

    def writes(self, since: int = 0, *, user: str = "") -> list[Write]:
        """The writes after a mark, of one user (by its whole name) or of all."""
        return [write for write in self._read(since) if not user or write.user == user]

    def count(self, since: int = 0, *, user: str = "") -> Counter[tuple[str, str]]:
        """How often each verb met each resource."""
        return Counter((write.verb, write.resource) for write in self.writes(since, user=user))

    def _read(self, since: int) -> Iterator[Write]:
        with self.path.open("rb") as log:
            log.seek(since)
            for line in log:
                if line.endswith(b"\n"):
                    yield _write(json.loads(line))


def service_account(namespace: str, name: str) -> str:
    """The user that a ServiceAccount's token makes."""
    return f"system:serviceaccount:{namespace}:{name}"


def _write(line: dict[str, Any]) -> Write:
    about = line.get("objectRef") or {}
    return Write(
        user=line["user"]["username"],
        verb=line["verb"],
        resource=about.get("resource", ""),
        subresource=about.get("subresource", ""),
        namespace=about.get("namespace", ""),
        name=about.get("name", ""),
        code=(line.get("responseStatus") or {}).get("code", 0),
        agent=line.get("userAgent", ""),
    )
