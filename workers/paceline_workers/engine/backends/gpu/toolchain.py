"""Triton's and torch's prerequisites in the process and on the machine, checked before anything is compiled.

Triton compiles each kernel's launcher with a C compiler against Python's headers, and loads it from its cache folder of
compiled kernels. Without these it would fail in the middle of a load, with a trace that names no fix.
"""

import os
import shutil
import sysconfig
import tempfile
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path

from paceline_core.errors import InvalidInput

COMPILERS = ("gcc", "clang")
_INTERPRETED = ("1", "true", "yes", "on", "y")
_IMAGE = "the worker's image has it"
_ALLOCATORS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""The names of torch's allocator settings: the current one, and the old one, which takes precedence."""


def headers(scheme: str) -> Path:
    """Where Triton looks for Python's headers: Debian's Python names a folder that has none."""
    return Path(sysconfig.get_path("include", "posix_prefix" if scheme == "posix_local" else scheme))


HEADERS = headers(sysconfig.get_default_scheme())


def allocate(environ: MutableMapping[str, str]) -> None:
    """Configure torch's allocator of GPU memory, unless it is configured; call it before torch is imported.

    A step with long chunks allocates tensors of sizes that no earlier step needed. In segments that cannot grow, each
    such size leaves a hole, until these fill the memory beside the pages and a step has to wait until all are released.
    Expandable segments are one range of addresses for each stream and pool of graphs. The allocator does not manage
    host memory, which `Device.lock` registers with the driver. Known hole: a driver that cannot map memory freely (some
    virtual GPUs) refuses the first tensor; `PYTORCH_ALLOC_CONF=expandable_segments:False` helps there.
    """
    if not any(name in environ for name in _ALLOCATORS):
        environ[_ALLOCATORS[0]] = "expandable_segments:True"


def check(
    environ: Mapping[str, str],
    which: Callable[[str], str | None] = shutil.which,
    headers: Path = HEADERS,
) -> None:
    """Raises InvalidInput naming what is missing, and the fix."""
    if environ.get("TRITON_INTERPRET", "").lower() in _INTERPRETED:
        raise InvalidInput("TRITON_INTERPRET", "is set, so that kernels would be interpreted on the CPU; unset it")
    if not environ.get("CC") and not any(map(which, COMPILERS)):
        raise InvalidInput("engine.device", f"kernels need a C compiler, gcc or clang; install one ({_IMAGE})")
    if not (headers / "Python.h").is_file():
        raise InvalidInput("engine.device", f"kernels need Python's headers in {headers}; install them ({_IMAGE})")
    _check_cache(cache_folder(environ))


def cache_folder(environ: Mapping[str, str]) -> Path:
    """The folder of compiled kernels, as Triton finds it."""
    if own := environ.get("TRITON_CACHE_DIR"):
        return Path(own)
    home = environ.get("TRITON_HOME") or environ.get("HOME") or tempfile.gettempdir()
    return Path(home) / ".triton/cache"


def _check_cache(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
        runs = not os.statvfs(folder).f_flag & os.ST_NOEXEC
    except OSError as error:
        raise InvalidInput(
            "TRITON_CACHE_DIR", f"{folder} cannot be written ({error}); name a folder that can"
        ) from None
    if not runs:
        raise InvalidInput(
            "TRITON_CACHE_DIR", f"{folder} is mounted noexec, so nothing there runs; name another folder"
        )
