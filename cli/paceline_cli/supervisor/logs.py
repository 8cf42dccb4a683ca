"""The parts' log files: bounded while they grow, and the end of one for an error message."""

from pathlib import Path

LIMIT = 32 << 20
KEPT = 1 << 20


def trim(path: Path, limit: int = LIMIT, kept: int = KEPT) -> None:
    """Cut a file over `limit` bytes down to its last `kept`; lines written meanwhile may be lost.

    The writer holds the file open for appending, so it goes on at the new end.
    """
    if path.stat().st_size <= limit:
        return
    end = _last(path, kept)
    with path.open("wb") as file:
        file.write(end)


def tail(path: Path, lines: int = 12) -> list[str]:
    """The last lines that are not empty; none when there is no file."""
    if not path.exists():
        return []
    written = _last(path, 64 << 10).decode(errors="replace").splitlines()
    return [line for line in written if line.strip()][-lines:]


def unwritable(path: Path) -> str:
    """Return why a log cannot be written any more, empty if it can; an empty line is written to find out."""
    try:
        with path.open("ab", buffering=0) as file:
            file.write(b"\n")
    except OSError as error:
        return f"{path} cannot be written: {error.strerror}"
    return ""


def _last(path: Path, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - size))
        return file.read(size)
