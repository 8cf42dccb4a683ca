"""What is generated from code and committed: CRDs and reference pages. `python -m paceline_core.generate [--check]`."""

from paceline_core.generate.artefacts import artefacts, drifted, write

__all__ = ["artefacts", "drifted", "write"]
