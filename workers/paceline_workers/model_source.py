"""Resolves a model source of a manifest to a folder on this machine, and reads its files. Never downloads anything.

builtin://demo is the package's own model; file:///path is that path; pvc://claim/path is MOUNTS/claim/path, where the
claim is mounted. Remote sources are refused by name, as this version cannot fetch them.

Reads only regular files, up to LIMIT bytes, so that no read waits for a pipe or runs without end.
"""

import errno
import json
import os
import stat
from pathlib import Path, PurePosixPath
from typing import Any

from paceline_core.errors import InvalidInput
from paceline_workers import demo

MOUNTS = Path("/models")
REMOTE = ("hf", "s3", "gs", "oci")
_FIELD = "model"


def locate(source: str, mounts: Path = MOUNTS) -> Path:
    """The model's folder; raises InvalidInput if there is none or the source is not supported."""
    scheme, separator, rest = source.partition("://")
    if not separator:
        raise InvalidInput(
            _FIELD, f"{source!r} is not a source; write builtin://demo, file:///path or pvc://claim/path"
        )
    folder = _folder(source, scheme, rest, mounts)
    if not folder.is_dir():
        raise InvalidInput(_FIELD, f"{source}: {folder} is not a folder here; mount or copy the model's folder there")
    return folder


def _folder(source: str, scheme: str, rest: str, mounts: Path) -> Path:
    if scheme in REMOTE:
        fix = "download the model's folder, and name it as file:///path or mount it and name it as pvc://claim/path"
        raise InvalidInput(_FIELD, f"{source}: this version does not fetch {scheme}:// sources; {fix}")
    if scheme == "builtin":
        return _builtin(rest)
    if scheme == "file":
        return _absolute(source, rest)
    if scheme == "pvc":
        return mounts / _below(source, rest)
    raise InvalidInput(_FIELD, f"{source!r}: the scheme {scheme}:// is unknown; use builtin, file or pvc")


def _builtin(name: str) -> Path:
    if name != "demo":
        raise InvalidInput(_FIELD, f"builtin://{name} does not exist; the only built-in model is builtin://demo")
    return demo.FOLDER


def _absolute(source: str, path: str) -> Path:
    if not path.startswith("/"):
        raise InvalidInput(_FIELD, f"{source!r}: the path must be absolute; write file:///path, with three slashes")
    return Path(path)


def _below(source: str, path: str) -> PurePosixPath:
    parts = PurePosixPath(path).parts
    if len(parts) < 2 or path.startswith("/") or ".." in parts:
        raise InvalidInput(_FIELD, f"{source!r} names no folder of a claim; write pvc://claim/path, without ..")
    return PurePosixPath(*parts)


LIMIT = 256 << 20
"""The largest tokenizers have some 35 MB."""


def read_bytes(path: Path) -> bytes:
    """The whole file. Raises OSError as `open` does, and if it is not a regular file or has more than LIMIT bytes."""
    with open(path, "rb", opener=_at_once) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        if found.st_size > LIMIT:
            raise OSError(errno.EFBIG, f"it has more than {LIMIT >> 20} MiB", str(path))
        return file.read()


def read_text(path: Path) -> str:
    """The file as text. Raises OSError, and UnicodeDecodeError if it is not UTF-8."""
    return read_bytes(path).decode()


def _at_once(path: str, flags: int) -> int:
    """Opens a pipe without waiting for its writer."""
    return os.open(path, flags | os.O_NONBLOCK)


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; raises InvalidInput naming the file."""
    try:
        data = json.loads(read_text(path))
    except OSError as error:
        raise InvalidInput(str(path), f"cannot be read: {error.strerror}; a model folder needs it") from None
    except (ValueError, RecursionError) as error:
        raise InvalidInput(str(path), f"is not JSON ({error}); copy it again") from None
    if not isinstance(data, dict):
        raise InvalidInput(str(path), "is not a JSON object; copy it again")
    return data
