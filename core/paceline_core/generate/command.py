"""The command of every generator: write what its artefacts say, or with `--check` list what drifted."""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from paceline_core.generate.artefacts import drifted, write


def run(module: str, about: str | None, artefacts: Mapping[str, str], arguments: list[str] | None) -> int:
    """Run in the repository's root, or give it with --root. Returns the exit code."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=about)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file drifted")
    parser.add_argument("--root", type=Path, default=Path(), help="the repository's root (default: here)")
    options = parser.parse_args(arguments)
    if options.check:
        stale = drifted(options.root, artefacts)
        sys.stdout.writelines(f"{name} drifted: run `make generate`\n" for name in stale)
        return 1 if stale else 0
    sys.stdout.writelines(f"wrote {name}\n" for name in write(options.root, artefacts))
    return 0
