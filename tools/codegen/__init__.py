"""What is generated from code and committed: CRDs and reference pages. `python -m tools.codegen [--check]`."""

from tools.codegen.files import drifted, generated_files, write

__all__ = ["drifted", "generated_files", "write"]
