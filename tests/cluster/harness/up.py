"""Keep a cluster running for hands-on work: `python -m tests.cluster.harness.up`; Ctrl-C removes everything.

Prints the line to paste once the cluster is ready. SIGTERM and a closed terminal end it as Ctrl-C does.
"""

import argparse
import contextlib
import signal
import sys
import threading
import time
from types import FrameType

from tests.cluster.harness.machine import Options
from tests.cluster.harness.parts import PartFailed
from tests.cluster.harness.start import started
from tests.cluster.harness.tools import ToolMissing, folder, versions


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
            _say(f'export KUBECONFIG={machine.kubeconfig} PATH="{folder("kubernetes")}:$PATH"')
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


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
