"""What every benchmark shares: rows with their bars, the machine they were measured on, one table, one JSON file.

`python -m benchmarks.<area> [--quick]` prints the table, writes `benchmarks/results/<area>.json` and exits with 1 when
a row misses its bar. A section of an area runs alone and has its own key in that file. A number without its machine,
versions and date is not written; a quick run goes to `<area>.quick.json`, so that it never replaces a whole one.
"""

import argparse
import json
import platform
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NoReturn

import psutil
from rich.console import Console
from rich.table import Table

from paceline_core import __version__
from paceline_core.clock import Clock, SystemClock, rfc3339

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PLAIN_WIDTH = 140
PACKAGES = ("torch", "triton", "httptools", "uvloop", "fastapi", "prometheus-client")


@dataclass(frozen=True, slots=True)
class Bar:
    """A limit that a value must keep."""

    limit: float
    at_least: bool = False

    def holds(self, value: float) -> bool:
        """Whether the value keeps it."""
        return value >= self.limit if self.at_least else value <= self.limit

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.limit:g}"


@dataclass(frozen=True, slots=True)
class Row:
    """One result. `spread` is highest minus lowest over the repetitions, `peer` the value it is compared with."""

    name: str
    value: float
    unit: str
    peer: float | None = None
    spread: float | None = None
    bar: Bar | None = None

    @property
    def ratio(self) -> float | None:
        """Value over peer."""
        return self.value / self.peer if self.peer else None

    @property
    def passed(self) -> bool | None:
        """None for a row that has no bar."""
        return self.bar.holds(self.value) if self.bar else None

    def json(self) -> dict[str, Any]:
        """The row as it is written."""
        bar = str(self.bar) if self.bar else None
        return {**asdict(self), "ratio": self.ratio, "bar": bar, "passed": self.passed}


Measured = tuple[list[Row], dict[str, Any]]
"""Rows, and whatever else an area wants to keep beside them."""


def median_row(name: str, values: Sequence[float], unit: str, bar: Bar | None = None, peer: float | None = None) -> Row:
    """A row from repetitions: their median and their spread."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    return Row(name, median, unit, peer, ordered[-1] - ordered[0], bar)


def quantile(values: Sequence[float], share: float) -> float:
    """The value that this share of some values, in any order, stays below."""
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]


def rotated(names: Sequence[str], turn: int) -> list[str]:
    """The same names, beginning with the `turn`-th: who is compared takes turns, and nobody is always the first."""
    begin = turn % len(names)
    return [*names[begin:], *names[:begin]]


def main(area: str, measure: Callable[[bool], Measured], clock: Clock | None = None) -> None:
    """Run one area from the command line; `measure` takes whether it shall be quick."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{area}")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions and shorter runs")
    quick: bool = parser.parse_args().quick
    report(area, lambda: measure(quick), clock or SystemClock(), ".quick" if quick else "")


def report(area: str, measure: Callable[[], Measured], clock: Clock, suffix: str = "") -> NoReturn:
    """Measure, print the table, write `<area><suffix>.json`, and exit. A suffix keeps a whole run's results."""

    def whole() -> Iterator[Measured]:
        yield measure()

    report_parts(area, whole(), clock, suffix)


def report_parts(area: str, parts: Iterable[Measured], clock: Clock, suffix: str = "") -> NoReturn:
    """As `report`, but the file is written with each part: its rows join those before, its details take their place."""
    started = rfc3339(clock.utc())
    rows: list[Row] = []
    for found, details in parts:
        rows += found
        _write(f"{area}{suffix}", document(area, rows, started, quick=suffix == ".quick") | {"details": details})
    _print(area, rows)
    sys.exit(any(row.passed is False for row in rows))


def report_section(
    area: str, section: str, measure: Callable[[], Measured], clock: Clock, suffix: str = ""
) -> NoReturn:
    """As `report`, but the results go under a key of their own in `<area><suffix>.json`; all others stay."""
    started = rfc3339(clock.utc())
    rows, details = measure()
    found = document(f"{area} {section}", rows, started, quick=suffix == ".quick") | {"details": details}
    _write(f"{area}{suffix}", {section: found})
    _print(f"{area} {section}", rows)
    sys.exit(any(row.passed is False for row in rows))


def document(area: str, rows: Sequence[Row], started: str, *, quick: bool) -> dict[str, Any]:
    """What is written: `v`, area, date, machine, versions, rows; `details` are the area's own."""
    return {
        "v": 1,
        "area": area,
        "date": started,
        "quick": quick,
        "machine": machine(),
        "versions": versions(),
        "rows": [row.json() for row in rows],
    }


def machine() -> dict[str, Any]:
    """What the numbers depend on."""
    return {
        "processor": _processor(),
        "cores": psutil.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
    }


def versions() -> dict[str, str]:
    """Python's and the installed packages'."""
    found = {"paceline": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _print(area: str, rows: Sequence[Row]) -> None:
    table = Table(title=f"benchmarks.{area}")
    for name in ("name", "value", "unit", "peer", "ratio", "spread", "bar", "passed"):
        table.add_column(name, justify="left" if name in ("name", "unit") else "right")
    for row in rows:
        numbers = [_number(value) for value in (row.peer, row.ratio, row.spread)]
        passed = {True: "yes", False: "NO", None: ""}[row.passed]
        table.add_row(row.name, _number(row.value), row.unit, *numbers, str(row.bar or ""), passed)
    Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH).print(table)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _write(name: str, data: dict[str, Any]) -> None:
    """Keys that `data` lacks keep their values, so that sections outlast a run of the whole area."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    kept: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(kept | data, indent=2, ensure_ascii=False) + "\n")
