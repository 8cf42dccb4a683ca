"""`python -m paceline_core.generate` writes the generated files; `--check` lists those that drifted and exits 1."""

import sys

from paceline_core.generate.artefacts import artefacts
from paceline_core.generate.command import run


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code."""
    return run("paceline_core.generate", __doc__, artefacts(), arguments)


if __name__ == "__main__":
    sys.exit(main())
