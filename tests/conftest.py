"""What holds for every test: none asserts a duration, so Hypothesis' own limits of time are off.

`make check` tries few examples of each property, `make test` the default number, `make nightly` many; so a test asks
for a number of its own only where one example takes long.

A fresh clone is slow at first (it builds its tables of characters), and a busy machine always is. Torch and what builds
on it have some sixty loggers that do not propagate, and pytest hangs its two handlers on each of them around each phase
of each test; so what they say goes up to the root, where pytest listens anyway. Who compares with `transformers`
imports it in the test: four seconds that a process without such tests spares.

Triton decides at the first import of a kernel whether it compiles or interprets; without a GPU it must interpret.

What collection makes (modules, and some 7,000 tests) lives as long as the process: the garbage collector does not walk
it while it grows, nor later.
"""

import gc
import logging
import os
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
for profile, examples in {"few": 25, "default": 100, "nightly": 1000}.items():
    settings.register_profile(profile, UNTIMED, max_examples=examples, print_blob=profile == "nightly")
settings.load_profile("default")

if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests, not garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    """Libraries report what is left at the end of the process: let it be found."""
    gc.unfreeze()


def pytest_collection_finish() -> None:
    """Nearly all is imported by now: most loggers are there."""
    for name, logger in logging.root.manager.loggerDict.items():
        if isinstance(logger, logging.Logger) and name.partition(".")[0] in {"torch", "transformers"}:
            logger.propagate = True
