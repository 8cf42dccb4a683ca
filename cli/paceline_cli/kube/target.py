"""Which cluster and which namespace: kubectl's own options, its environment variable and its defaults.

Hole: of several files in $KUBECONFIG the first that exists is read; kubectl merges them.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer
import yaml

from paceline_core.errors import InvalidInput
from paceline_core.kube import key_namespace_of
from paceline_core.objects.fields import FIXES, LABEL_PATTERN

SYSTEM: Final = "paceline-system"

Kubeconfig = Annotated[
    str,
    typer.Option(
        "--kubeconfig", envvar="KUBECONFIG", metavar="FILE", help="Path of the kubeconfig. Default: ~/.kube/config."
    ),
]
Context = Annotated[str, typer.Option("--context", metavar="NAME", help="Context of the kubeconfig to use.")]
Namespace = Annotated[
    str, typer.Option("--namespace", "-n", metavar="NS", help="Namespace. Default: the context's, else default.")
]
System = Annotated[
    str,
    typer.Option(
        "--system-namespace", metavar="NS", help="Namespace that paceline is installed in.", show_default=True
    ),
]

Keys = Annotated[
    str,
    typer.Option(
        "--key-namespace", metavar="NS", help="Namespace of tenants' keys. Default: paceline's plus -tenant-keys."
    ),
]


@dataclass(frozen=True, slots=True)
class KubeTarget:
    """A cluster by its kubeconfig and context, the namespace asked about, and the one that paceline runs in."""

    kubeconfig: Path
    context: str
    namespace: str
    system: str

    def keys(self, option: str) -> str:
        """The namespace of tenants' keys; raises InvalidInput when it cannot be one."""
        return _checked("--key-namespace", option or key_namespace_of(self.system))


def place(kubeconfig: str, context: str, namespace: str, system: str) -> KubeTarget:
    """Fill in what kubectl would; raises InvalidInput when there is no kubeconfig or a name cannot be one."""
    file = _file(kubeconfig)
    chosen = namespace or _namespace(file, context) or "default"
    return KubeTarget(file, context, _checked("--namespace", chosen), _checked("--system-namespace", system))


def _file(option: str) -> Path:
    candidates = [Path(part).expanduser() for part in option.split(os.pathsep) if part]
    for path in candidates or [Path("~/.kube/config").expanduser()]:
        if path.is_file():
            return path
    named = f"{option} does not exist" if option else "there is none at ~/.kube/config"
    raise InvalidInput("--kubeconfig", f"{named}; name the cluster's kubeconfig, or set KUBECONFIG")


def _namespace(file: Path, context: str) -> str:
    """The context's namespace; faults of the file are reported when it is used to connect."""
    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return ""
    return next(_namespaces(document, context), "")


def _namespaces(document: Any, context: str) -> Iterator[str]:
    wanted = context or _field(document, "current-context")
    for entry in _field(document, "contexts") or ():
        if _field(entry, "name") == wanted and (found := _field(_field(entry, "context"), "namespace")):
            yield str(found)


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _checked(option: str, namespace: str) -> str:
    if not re.fullmatch(LABEL_PATTERN, namespace) or len(namespace) > 63:
        raise InvalidInput(option, f"{namespace!r} is no namespace ({FIXES[LABEL_PATTERN]})")
    return namespace
