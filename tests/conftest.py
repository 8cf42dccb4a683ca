"""What holds for every test: none asserts a duration, so Hypothesis' own limits of time are off.

A fresh clone is slow at first (it builds its tables of characters), and a busy machine always is. Torch and what builds
on it have some sixty loggers that do not propagate, and pytest hangs its two handlers on each of them around each phase
of each test; so what they say goes up to the root, where pytest listens anyway.
"""

import logging

from hypothesis import HealthCheck, settings

settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_collection_finish() -> None:
    """All is imported by now, so all loggers are there."""
    for name, logger in logging.root.manager.loggerDict.items():
        if isinstance(logger, logging.Logger) and name.partition(".")[0] in {"torch", "transformers"}:
            logger.propagate = True
