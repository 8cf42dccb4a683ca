"""Reading a model's files: only regular ones, up to LIMIT bytes, so that nobody waits for a pipe or reads on and on."""

import errno
import os
import stat
from pathlib import Path

LIMIT = 256 << 20
"""The largest tokenizers have some 35 MB."""


def read_bytes(path: Path) -> bytes:
    """All of it. Raises OSError as `open` does, and for what is no regular file or has more than LIMIT bytes."""
    with open(path, "rb", opener=_at_once) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        if found.st_size > LIMIT:
            raise OSError(errno.EFBIG, f"it has more than {LIMIT >> 20} MiB", str(path))
        return file.read()


def read_text(path: Path) -> str:
    """The same as text. Raises OSError, and UnicodeDecodeError for what is not UTF-8."""
    return read_bytes(path).decode()


def _at_once(path: str, flags: int) -> int:
    """A pipe is opened without its writer."""
    return os.open(path, flags | os.O_NONBLOCK)
