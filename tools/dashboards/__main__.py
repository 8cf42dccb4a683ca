"""`python -m tools.dashboards` writes boards and rules; `--check` lists those that drifted and exits 1."""

import argparse
import sys
from pathlib import Path

from paceline_core.generate import drifted, write
from tools.dashboards.artefacts import artefacts


def main(arguments: list[str] | None = None) -> int:
    """Run in the repository's root, or give it with --root. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.dashboards", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file drifted")
    parser.add_argument("--root", type=Path, default=Path(), help="the repository's root (default: here)")
    options = parser.parse_args(arguments)
    if options.check:
        stale = drifted(options.root, artefacts())
        sys.stdout.writelines(f"{name} drifted: run `make generate`\n" for name in stale)
        return 1 if stale else 0
    sys.stdout.writelines(f"wrote {name}\n" for name in write(options.root, artefacts()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
