"""`python -m tools.dashboards` writes boards and rules; `--check` lists those that drifted and exits 1."""

import sys

from tools.codegen.files import run
from tools.dashboards.files import generated_files


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code."""
    return run("tools.dashboards", __doc__, generated_files(), arguments)


if __name__ == "__main__":
    sys.exit(main())
