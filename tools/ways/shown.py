"""A way's figures for JSON and for a terminal, and two states of the code beside each other."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.harness import Bar, Measured, Row

from tools.ways.walk import Stop, figures, returns

BARS = {("chat", "files"): 0.7, ("chat", "returns"): 0.45, ("scale", "files"): 0.77}
"""How much may be left of the state before, of all stops and of the steps alone."""

COUNTED = ("stops", "files", "changes", "returns")
SHORTER = ("entries", "steps")

Shown = dict[str, Any]


def described(root: Path, walk: Sequence[Stop]) -> Shown:
    """The figures of a way, its files with lines and returns, and its stops; a RuntimeError for an empty way."""
    if not walk:
        raise RuntimeError(f"no call in {root}/*/paceline_*/ was recorded; does its .venv import the packages there?")
    files = {stop.file: len((root / stop.file).read_text().splitlines()) for stop in walk}
    back: dict[str, list[dict[str, str]]] = defaultdict(list)
    for each in returns(walk):
        back[each.function.file].append({"from": each.origin, "to": each.function.name})
    return {
        **asdict(figures(walk)),
        "lines": sum(files.values()),
        "entries": asdict(figures([stop for stop in walk if stop.entry])),
        "steps": asdict(figures([stop for stop in walk if stop.step])),
        "by_file": [{"file": file, "lines": lines, "returns": back[file]} for file, lines in files.items()],
        "walk": [_shown(stop) for stop in walk],
    }


def text(name: str, found: Shown) -> str:
    """Figures, then each file with its lines and the returns to it, most first."""
    lines = [f"{name}: {_counted(found)}, {found['lines']} lines"]
    lines += [f"  {walk} alone: {_counted(found[walk])}" for walk in SHORTER]
    for row in sorted(found["by_file"], key=lambda row: -len(row["returns"])):
        lines.append(f"{len(row['returns']):4} returns  {row['lines']:4} lines  {row['file']}")
        lines += [f"       {each['to']}  from {each['from']}" for each in row["returns"]]
    return "\n".join(lines) + "\n"


def _counted(found: Shown) -> str:
    return ", ".join(f"{found[unit]} {unit}" for unit in COUNTED)


def _shown(stop: Stop) -> Shown:
    return {"file": stop.file, "function": stop.function.name, "caller": stop.caller, "leads": stop.leads}


def compared(before: dict[str, Shown], after: dict[str, Shown]) -> Measured:
    """Rows whose peer is the state before, for the ways that both have; the files of both in the details."""
    rows = [row for name in after if name in before for row in _rows(name, before[name], after[name])]
    return rows, {"before": _by_file(before), "after": _by_file(after)}


def _rows(name: str, before: Shown, after: Shown) -> Iterator[Row]:
    for unit in (*COUNTED, "lines"):
        yield Row(f"{name}: {unit}", after[unit], unit, before[unit], bar=_bar(name, unit, before))
    for walk in SHORTER:
        for unit in COUNTED:
            bar = _bar(name, unit, before[walk]) if walk == "steps" else None
            yield Row(f"{name}, {walk} alone: {unit}", after[walk][unit], unit, before[walk][unit], bar=bar)


def _bar(name: str, unit: str, before: Shown) -> Bar | None:
    share = BARS.get((name, unit))
    return None if share is None else Bar(round(share * before[unit], 2))


def _by_file(ways: dict[str, Shown]) -> dict[str, dict[str, int]]:
    return {
        f"{name}: returns to each file": {row["file"]: len(row["returns"]) for row in found["by_file"]}
        for name, found in ways.items()
    }
