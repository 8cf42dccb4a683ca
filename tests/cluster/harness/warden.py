"""Ends a run when its owner is gone: the owner holds the other end of standard input, and the kernel closes it."""

import signal
import sys
from pathlib import Path

from tests.cluster.harness.runs import Run, sweep


def main() -> None:
    """Wait for the owner's end, then sweep the run named by its folder."""
    for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(ignored, signal.SIG_IGN)
    sys.stdin.buffer.read()
    sweep(Run(Path(sys.argv[1])))


if __name__ == "__main__":
    main()
