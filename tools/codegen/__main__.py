"""`python -m tools.codegen` writes the generated files; `--check` lists those that drifted and exits 1."""

import sys

from tools.codegen.files import generated_files, run


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code."""
    return run("tools.codegen", __doc__, generated_files(), arguments)


if __name__ == "__main__":
    sys.exit(main())
