"""One trial: the fault in the file, the related tests of each layer until one fails, the file as it was.

A failure counts if the same test passes without the fault; a test that fails either way is left out from then on. Each
trial starts from the same seed of Hypothesis and without its database, so that the order of trials changes nothing.
"""

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

from tools.planted_faults.faults import Fault, Found
from tools.planted_faults.mutations import mutated
from tools.planted_faults.related import ImportGraph

GRACE_S: Final = 20.0
QUICK, KERNELS, REAL = "not real and not kernels", "kernels and not real", "real"
_PASSED: Final = frozenset({0, 5})
"""pytest's exit codes: all passed, none selected."""
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (tests/\S+?\.py(?:::.*?)?)(?: - .*)?$", re.MULTILINE)


class UnclearError(Exception):
    """pytest fails without the fault too, and not in a test that can be left out."""


@dataclass(frozen=True)
class Limits:
    """How long one trial may take, and how many of the nearest test files each layer runs."""

    seconds: float
    quick: int
    kernels: int
    real: int


@dataclass
class Outcome:
    """What became of one fault. `layer` is the pytest mark of the tests that ran last."""

    fault: str
    place: str
    result: str
    """caught, missed, timeout, unclear (pytest fails without the fault too) or not applicable"""
    test: str = ""
    layer: str = ""
    files: int = 0
    """Test files run."""
    seconds: float = 0.0
    note: str = ""


@dataclass
class Trials:
    """Plants faults in one checkout and runs its tests in its own environment."""

    root: Path
    keep: Path
    """Where a changed file's text is kept, so that even a killed run can be undone."""
    limits: Limits
    unsteady: set[str] = field(default_factory=set)
    """Tests that fail without a fault."""

    def __post_init__(self) -> None:
        self._restore()
        self._graph = ImportGraph(self.root)

    def run(self, fault: Fault, found: Found) -> Outcome:
        """Plant, test, restore."""
        outcome = Outcome(fault.id, f"{found.path} {found.function}", "missed")
        begun = time.monotonic()
        for layer, files in self._batches(fault, found):
            outcome.layer, outcome.files = layer, outcome.files + len(files)
            try:
                outcome.test = self._catcher(found, layer, files, begun + self.limits.seconds)
            except TimeoutError:
                outcome.result = "timeout"
                break
            except UnclearError as error:
                outcome.result, outcome.note = "unclear", str(error)
                break
            if outcome.test:
                outcome.result = "caught"
                break
        outcome.seconds = round(time.monotonic() - begun, 1)
        return outcome

    def _batches(self, fault: Fault, found: Found) -> Iterator[tuple[str, list[str]]]:
        """The nearest few alone: most faults need no more."""
        related = self._graph.related(found.path, found.function)
        quick = [test for test in related if not test.startswith("tests/kernels/")][: self.limits.quick]
        kernels = [test for test in related if test.startswith(("tests/kernels/", "tests/engine/"))]
        yield from ((QUICK, part) for part in (quick[:4], quick[4:16], quick[16:]) if part)
        yield from ((KERNELS, part) for part in [self._graph.marked(kernels, "kernels")[: self.limits.kernels]] if part)
        yield from ((REAL, part) for part in [self._graph.real(fault.package, related)[: self.limits.real]] if part)

    def _catcher(self, found: Found, layer: str, files: Sequence[str], until: float) -> str:
        """The test that fails with the fault and passes without it; empty if none does."""
        while files := [file for file in files if file not in self.unsteady]:
            with self._planted(found):
                code, output = self._pytest(layer, files, until)
            if code in _PASSED:
                return ""
            failed = _FAILED.findall(output)
            clean, output = self._pytest(layer, failed[:1] or files, time.monotonic() + self.limits.seconds)
            if clean in _PASSED:
                return failed[0] if failed else f"pytest itself: exit {code}"
            if not failed or failed[0] in self.unsteady:
                raise UnclearError(f"{failed or files}: exit {clean} without the fault\n{output[-500:]}")
            self.unsteady.add(failed[0])
        return ""

    @contextlib.contextmanager
    def _planted(self, found: Found) -> Iterator[None]:
        self.keep.write_text(f"{found.path}\n{found.source}", encoding="utf-8")
        try:
            _write(self.root / found.path, mutated(found.source, found.site))
            yield
        finally:
            self._restore()

    def _restore(self) -> None:
        """Write the text that is kept; a killed run left one."""
        if self.keep.exists():
            path, _, text = self.keep.read_text(encoding="utf-8").partition("\n")
            _write(self.root / path, text)
            self.keep.unlink()

    def _pytest(self, layer: str, tests: Sequence[str], until: float) -> tuple[int, str]:
        """Exit code and output. Raises TimeoutError; then neither pytest nor a process it started is left."""
        with tempfile.TemporaryDirectory() as folder:
            left_out = [part for test in sorted(self.unsteady - set(tests)) for part in ("--deselect", test)]
            options = ["-x", "-q", "-m", layer, "-p", "no:cacheprovider", "--hypothesis-seed=0"]
            process = subprocess.Popen(  # noqa: S603 - this checkout's own tests
                [self.root / ".venv/bin/python", "-m", "pytest", *options, *left_out, *tests],
                cwd=self.root,
                env={**os.environ, "HYPOTHESIS_STORAGE_DIRECTORY": folder},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            )
            try:
                output, _ = process.communicate(timeout=max(1.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                _end(process)
                raise TimeoutError from None
            except BaseException:
                _end(process)
                raise
            return process.returncode, output


def _end(process: subprocess.Popen[str]) -> None:
    """Let pytest tear its fixtures down; end what is left."""
    children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    process.send_signal(signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=GRACE_S)
    for left in [child for child in children if child.is_running()]:
        with contextlib.suppress(psutil.NoSuchProcess):
            left.kill()
    process.kill()
    process.communicate()


def _write(path: Path, text: str) -> None:
    """Bytecode goes too: Python knows a changed file by its size and the second it was written in."""
    path.write_text(text, encoding="utf-8")
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink(missing_ok=True)
