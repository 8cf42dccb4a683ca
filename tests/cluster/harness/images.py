"""The one image of the cluster tests, made without a registry, and what the containers see of this machine.

The image holds empty folders, a user and `pause`. Every container gets this machine's libraries, Python, virtual
environment and checkout, read-only, from containerd's base runtime spec, so what runs is the tree as it stands. The
environment and the checkout appear in `/opt/paceline`, because their own places may lie in a folder that a pod's
`/tmp` hides or that only root may enter; Python appears at its own place, where the environment's links lead. Hole:
a Python that itself lives under `/tmp` cannot be used.
"""

import hashlib
import io
import json
import os
import sys
import tarfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.cluster.harness.runs import CHECKOUT, Run
from tests.cluster.harness.tools import program

PAUSE_IMAGE = "localhost/pause:1"
PACELINE_IMAGE = "localhost/paceline:test"
USER = 65532

_HOME = "/opt/paceline"
_FOLDERS = ("bin", "dev", "etc", "home", "lib", "lib64", "opt", "proc", "root", "run", "sbin", "sys", "usr", "var")
_PASSWD = f"root:x:0:0:root:/root:/bin/sh\npaceline:x:{USER}:{USER}:paceline:/tmp:/bin/sh\n"
_GROUP = f"root:x:0:\npaceline:x:{USER}:\n"


def mounts() -> Iterator[dict[str, Any]]:
    """The read-only mounts that make the empty image run this tree."""
    for folder in ("/usr", "/bin", "/sbin", "/lib", "/lib64"):
        if Path(folder).exists():
            yield _mount(folder, folder)
    for folder in sorted({sys.base_prefix, os.path.realpath(sys.base_prefix)}):
        if not Path(folder).is_relative_to("/usr"):
            yield _mount(folder, folder)
    yield _mount(sys.prefix, f"{_HOME}/venv")
    yield _mount(str(CHECKOUT), f"{_HOME}/src")
    yield _mount(str(program("prometheus")), f"{_HOME}/bin/prometheus")  # Debian's knows no Kubernetes


def _mount(source: str, target: str) -> dict[str, Any]:
    return {"type": "bind", "source": source, "destination": target, "options": ["rbind", "ro", "nosuid"]}


def write_image(path: Path, run: Run) -> None:
    """Write the image, under both its names, as an archive that `ctr images import` reads."""
    layer = _layer()
    config = _json({**_platform(), "config": _config(run), "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]}})
    manifest = _json(_manifest(config, layer))
    index = _json({"schemaVersion": 2, "manifests": [_named(manifest, name) for name in (PAUSE_IMAGE, PACELINE_IMAGE)]})
    with tarfile.open(path, "w") as archive:
        _add(archive, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        _add(archive, "index.json", index)
        for blob in (layer, config, manifest):
            _add(archive, "blobs/" + _digest(blob).replace(":", "/"), blob)


def _config(run: Run) -> dict[str, Any]:
    folders = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["dev-mode-dirs"]
    environment = {
        "PATH": f"{_HOME}/bin:{_HOME}/venv/bin:/usr/local/bin:/usr/bin:/bin",
        "PYTHONPATH": ":".join([*(f"{_HOME}/src/{folder}" for folder in folders), f"{_HOME}/src"]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "HOME": "/tmp",
        **run.environment(),
    }
    env = [f"{key}={value}" for key, value in environment.items()]
    return {"Entrypoint": ["/pause"], "User": f"{USER}:{USER}", "WorkingDir": "/", "Env": env}


def _platform() -> dict[str, str]:
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
    return {"architecture": machine, "os": "linux"}


def _layer() -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as layer:
        for folder in _FOLDERS:
            _add_folder(layer, folder, 0o755)
        _add_folder(layer, "tmp", 0o1777)
        _add(layer, "etc/passwd", _PASSWD.encode())
        _add(layer, "etc/group", _GROUP.encode())
        _add(layer, "pause", program("pause").read_bytes(), mode=0o755)
    return content.getvalue()


def _manifest(config: bytes, layer: bytes) -> dict[str, Any]:
    kind = "application/vnd.oci.image."
    return {
        "schemaVersion": 2,
        "mediaType": kind + "manifest.v1+json",
        "config": _described(config, kind + "config.v1+json"),
        "layers": [_described(layer, kind + "layer.v1.tar")],
    }


def _named(manifest: bytes, name: str) -> dict[str, Any]:
    described = _described(manifest, "application/vnd.oci.image.manifest.v1+json")
    return {**described, "platform": _platform(), "annotations": {"io.containerd.image.name": name}}


def _described(blob: bytes, kind: str) -> dict[str, Any]:
    return {"mediaType": kind, "digest": _digest(blob), "size": len(blob)}


def _digest(blob: bytes) -> str:
    return "sha256:" + hashlib.sha256(blob).hexdigest()


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))


def _add_folder(archive: tarfile.TarFile, name: str, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, mode
    archive.addfile(entry)
