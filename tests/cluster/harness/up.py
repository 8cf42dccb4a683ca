"""Keep a cluster running for hands-on work: `python -m tests.cluster.harness.up`; Ctrl-C removes everything.

Prints what to paste once the cluster is ready: its environment, and the commands that install paceline into it and ask
it something, with the image of this checkout. SIGTERM and a closed terminal end it as Ctrl-C does.
"""

import argparse
import contextlib
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType

from tests.cluster.harness.images import PACELINE_IMAGE
from tests.cluster.harness.machine import Options
from tests.cluster.harness.parts import PartFailed
from tests.cluster.harness.start import started
from tests.cluster.harness.tools import ToolMissing, folder, versions

SYSTEM = "paceline-system"
_PARTS = ("operator", "autoscaler", "gateway", "worker", "prometheus")
INSTALL = (
    f"helm install paceline charts/paceline --namespace {SYSTEM} --create-namespace --wait --timeout 5m --set "
    + ",".join(f"{part}.image={PACELINE_IMAGE}" for part in _PARTS)
)
"""As docs/install.md has it, with the one image that the node of this machine has."""
_ASKED = '{"model": "demo", "messages": [{"role": "user", "content": "Hi"}]}'
_HEADERS = """-H "authorization: Bearer $KEY" -H 'content-type: application/json'"""
COMMANDS = (
    INSTALL,
    "kubectl apply -f examples/chat.yaml",
    "kubectl wait --for=condition=Ready pisvc/chat --timeout=120s",
    f"KEY=$(kubectl paceline keys create local --system-namespace {SYSTEM} | grep -o 'pl_[a-z0-9_]*' | tail -1)",
    f"kubectl port-forward -n {SYSTEM} service/paceline-gateway 8080:80 > /dev/null & sleep 2",
    f"curl -sS http://127.0.0.1:8080/v1/chat/completions {_HEADERS} -d '{_ASKED}'",
)


def main() -> None:
    """Run until asked to end."""
    options = _options()
    # A shell starts what it puts in the background with SIGINT ignored; this one is asked for by name.
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, _end)
    began = time.monotonic()
    try:
        with contextlib.suppress(KeyboardInterrupt), started(options) as machine:
            _say(versions())
            _say(f"ready in {time.monotonic() - began:.1f} s; logs in {machine.run.folder}/logs; paste:")
            _say(f'export KUBECONFIG={machine.kubeconfig} PATH="{_places()}:$PATH"')
            if options.real_node:
                _say("then, from the checkout's folder, to install paceline and ask it something:")
                for line in COMMANDS:
                    _say(line)
            _say("Ctrl-C removes everything")
            threading.Event().wait()
    except (ToolMissing, PartFailed, PermissionError) as problem:
        sys.exit(f"error: {problem}")


def _options() -> Options:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.harness.up", description="Keep a cluster running.")
    parser.add_argument("--control-plane-only", action="store_true", help="no node: etcd, API server, controllers")
    parser.add_argument("--kwok-nodes", type=int, default=0, metavar="N", help="fake nodes beside the real one")
    parser.add_argument("--no-real-node", action="store_true", help="only fake nodes")
    parser.add_argument("--raised-limits", action="store_true", help="client limits for scale runs")
    asked = parser.parse_args()
    real = not (asked.control_plane_only or asked.no_real_node)
    return Options(real_node=real, kwok_nodes=asked.kwok_nodes, raised_limits=asked.raised_limits)


def _end(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _places() -> str:
    """Where kubectl, helm and the plugin `kubectl paceline` are."""
    return ":".join(map(str, (folder("kubernetes"), folder("helm"), Path(sys.executable).parent)))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
