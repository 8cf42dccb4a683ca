"""kubectl and helm as a test calls them: on one kubeconfig, with a limit, and with their words when they fail."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.harness.tools import program

LIMIT_S = 90.0


class CommandFailed(Exception):
    """The command ended with an error; the text is what it said."""


@dataclass(frozen=True, slots=True)
class Kubectl:
    """`kubectl`, the one that was built for the cluster."""

    kubeconfig: Path
    namespace: str = ""

    def __call__(self, *words: str, manifest: object = None, limit_s: float = LIMIT_S) -> str:
        """Run it; `manifest` (text, or objects) goes to standard input, for `apply -f -`."""
        place = [f"--namespace={self.namespace}"] if self.namespace else []
        argv = [str(program("kubectl", "kubernetes")), f"--kubeconfig={self.kubeconfig}", *place, *words]
        return _run(argv, {}, _text(manifest), limit_s)

    def json(self, *words: str) -> Any:
        """The answer of a `get` as a value."""
        return json.loads(self(*words, "--output=json"))

    def apply(self, *objects: object) -> str:
        """Apply objects, server-side."""
        return self("apply", "--server-side", "--filename=-", manifest=_bundle(objects))

    def within(self, namespace: str) -> "Kubectl":
        """The same, in a namespace."""
        return Kubectl(self.kubeconfig, namespace)


@dataclass(frozen=True, slots=True)
class Helm:
    """`helm`, version 4 or 3, with folders of its own."""

    kubeconfig: Path
    home: Path
    tool: str = "helm"

    def __call__(self, *words: str, limit_s: float = LIMIT_S) -> str:
        """Run it."""
        names = ("CACHE", "CONFIG", "DATA")
        places = {f"HELM_{name}_HOME": str(self.home / self.tool / name.lower()) for name in names}
        argv = [str(program("helm", self.tool)), *words]
        return _run(argv, {**places, "KUBECONFIG": str(self.kubeconfig)}, None, limit_s)


def _run(argv: list[str], environment: dict[str, str], standard_input: str | None, limit_s: float) -> str:
    done = subprocess.run(
        argv,
        env={**os.environ, **environment},
        input=standard_input or "",
        capture_output=True,
        text=True,
        check=False,
        timeout=limit_s,
    )
    if done.returncode:
        raise CommandFailed(f"{Path(argv[0]).name} {' '.join(argv[1:])}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def _text(manifest: object) -> str | None:
    return manifest if isinstance(manifest, str) or manifest is None else json.dumps(manifest)


def _bundle(objects: tuple[object, ...]) -> str:
    if len(objects) == 1 and isinstance(objects[0], str):
        return objects[0]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
