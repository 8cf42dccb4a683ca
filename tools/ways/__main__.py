"""`python -m tools.ways [--root CHECKOUT]`: trace the two main ways of a checkout and print their figures.

The same script measures any state of the code, so that two states can be compared: it uses the command line, a manifest
and the HTTP API, and of the code only that a product file is in `*/paceline_*/` and what the packages are called. The
checkout's own `.venv` runs it. About 2 minutes for the chat and 7 for the scale-up. Trace on a quiet machine.

`--json FILE` writes all stops and returns. `--before FILE`, written by an earlier run, compares the two states and
writes `benchmarks/results/ways.json`.
"""

import argparse
import json
import sys
from pathlib import Path

from benchmarks.harness import report

from paceline_core.clock import SystemClock
from tools.ways import chat, scale
from tools.ways.shown import compared, described, text

HERE = Path(__file__).parents[2]


def main(argv: list[str]) -> None:
    """Trace, print, compare if asked to; exit with 1 when a trace fails or a bar is missed."""
    asked = _arguments(argv)
    root = asked.root.resolve()
    try:
        found = {}
        if asked.only != "scale":
            found["chat"] = described(root, chat.way(root, asked.chats))
        if asked.only != "chat":
            found["scale"] = described(root, scale.way(root, asked.runs))
    except RuntimeError as error:
        sys.exit(f"error: {error}")
    sys.stdout.write("\n".join(map(text, found, found.values())))
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1) + "\n")
    if asked.before:
        before = json.loads(asked.before.read_text())
        report("ways", lambda: compared(before, found), SystemClock())


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.ways")
    parser.add_argument("--only", choices=["chat", "scale"], help="trace one of the two ways")
    parser.add_argument("--root", type=Path, default=HERE, help="checkout to trace (default: this one)")
    parser.add_argument("--chats", type=int, default=123, help="chats sent (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=7, help="scale-ups observed (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all stops and returns to FILE")
    parser.add_argument("--before", type=Path, metavar="FILE", help="compare with what --json wrote earlier")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main(sys.argv[1:])
