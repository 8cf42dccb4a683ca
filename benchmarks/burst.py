"""The promise under a burst: broken, kept again by more replicas, which are given back; beside it one replica alone.

Both runs start `examples/burst.yaml` afresh; the control has min = max = 1. A row's peer is the control's value.
A run in which emulated steps ended late, or requests were sent late, is void and fails: it measured the machine.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml
from benchmarks.harness import ROOT, Bar, Measured, Row, main

from paceline_cli.bench.observation import LATENESS_LIMIT
from paceline_cli.bench.report import SEND_LATENESS_LIMIT_S

MANIFEST = ROOT / "examples" / "burst.yaml"
DURATION, QUICK_DURATION = "30s,150s,150s", "15s,75s,90s"
QUICK_COLD_START = "5s"
LIMIT_S = 1800.0
TARGET = "ttft_p95"
OBJECTIVE = 0.95

Manifest = dict[str, Any]
Document = Mapping[str, Any]


def measure(quick: bool) -> Measured:
    """Both runs, their rows, and what happened over time."""
    text, duration = MANIFEST.read_text(), QUICK_DURATION if quick else DURATION
    scaled = bench(edited(text, faster if quick else same), duration)
    control = bench(edited(text, alone, faster if quick else same), duration)
    return list(rows(scaled, control)), {"scaled": story(scaled), "control": story(control)}


def bench(manifests: str, duration: str, *options: str) -> Document:
    """One run of `paceline bench` with its own stack; its report, void or not."""
    with tempfile.TemporaryDirectory(prefix="paceline-burst-") as scratch:
        file, out = Path(scratch) / "burst.yaml", Path(scratch) / "report.json"
        file.write_text(manifests)
        arguments = ["-f", str(file), "--profile", "burst", "--duration", duration, "--out", str(out), *options]
        subprocess.run([sys.executable, "-m", "paceline_cli", "bench", *arguments], check=False, timeout=LIMIT_S)
        report: Document = json.loads(out.read_text())
        return report


def edited(text: str, *edits: Callable[[Manifest], None]) -> str:
    """The same documents with every InferenceService changed by `edits`."""
    documents = list(yaml.safe_load_all(text))
    for document in documents:
        for edit in edits if document["kind"] == "InferenceService" else ():
            edit(document)
    return yaml.safe_dump_all(documents, sort_keys=False)


def same(service: Manifest) -> None:
    """No change."""
    del service


def alone(service: Manifest) -> None:
    """One replica and never another."""
    for pool in service["spec"]["pools"]:
        pool["replicas"] = {"min": 1, "max": 1}


def faster(service: Manifest) -> None:
    """A short cold start, for a quick look."""
    service["spec"]["engine"]["emulate"]["coldStart"] = QUICK_COLD_START


def rows(scaled: Document, control: Document) -> Iterator[Row]:
    """What is claimed, each with its bar."""
    kept = Bar(OBJECTIVE, at_least=True)
    for name, bar in (("before", kept), ("burst", None), ("after", kept)):
        yield Row(f"attainment {TARGET}, {name}", attained(scaled, name), "share", attained(control, name), bar=bar)
    yield Row("worst 5 s of the burst", min(in_burst(scaled)), "share", min(in_burst(control)), bar=Bar(OBJECTIVE))
    yield Row("last third of the burst", late(scaled), "share", late(control), bar=kept)
    yield Row("last third of the burst, control", late(control), "share", bar=Bar(OBJECTIVE))
    yield from _replicas(scaled, control)
    yield from _trust(scaled, "scaled")
    yield from _trust(control, "control")


def _replicas(scaled: Document, control: Document) -> Iterator[Row]:
    ready = [sample["ready"] for sample in scaled["observation"]["replicas"]]
    if scaled["recovery_s"] is not None:
        yield Row("burst's begin to kept again", scaled["recovery_s"], "s", control["recovery_s"])
    yield Row("replicas, most", max(ready), "replicas", 1, bar=Bar(2, at_least=True))
    yield Row("replicas given back by the end", max(ready) - ready[-1], "replicas", bar=Bar(1, at_least=True))


def _trust(report: Document, name: str) -> Iterator[Row]:
    """What must hold for the numbers to mean anything."""
    seen = report["observation"]
    yield Row(f"streams cut, {name}", report["cut_streams"], "streams", bar=Bar(0))
    yield Row(f"ledger entries that replay differently, {name}", seen["decisions"]["different"], "entries", bar=Bar(0))
    lateness = seen["emulation"]["p99_at_most"]
    yield Row(f"emulated steps' lateness p99, at most, {name}", lateness, "of a step", bar=Bar(LATENESS_LIMIT))
    late_s = report["overall"]["send_lateness"]["p99"]
    yield Row(f"requests sent late, p99, {name}", late_s * 1000, "ms", bar=Bar(SEND_LATENESS_LIMIT_S * 1000))
    yield Row(f"host CPU, mean, {name}", seen["host"]["mean"], f"of {seen['host']['cores']} cores")


def attained(report: Document, phase: str) -> float:
    """Attainment of the target over one phase's offered requests."""
    summary = next(part for part in report["phases"] if part["name"] == phase)
    return float(next(part["ratio"] for part in summary["promise"] if part["target"] == TARGET))


def in_burst(report: Document) -> Sequence[float]:
    """Attainment in each window that lies within the burst."""
    before, burst = (phase["duration"] for phase in report["profile"]["phases"][:2])
    inside = [window for window in report["timeline"] if before <= window["start"] and window["end"] <= before + burst]
    return [window["attainment"][TARGET] for window in inside if window["offered"]]


def late(report: Document) -> float:
    """Mean attainment over the windows of the burst's last third."""
    windows = in_burst(report)
    tail = windows[-max(len(windows) // 3, 1) :]
    return sum(tail) / len(tail)


def story(report: Document) -> dict[str, Any]:
    """What happened over time, short enough to read."""
    seen = report["observation"]
    ready = groupby(seen["replicas"], key=lambda sample: sample["ready"])
    return {
        "verdict": report["verdict"],
        "void_because": report["void_because"],
        "endings": report["overall"]["endings"],
        "ttft": {part["name"]: part["ttft"] for part in report["phases"]},
        "attainment": [[window["start"], window["attainment"].get(TARGET)] for window in report["timeline"]],
        "ready": [[round(next(group)["at"]), number] for number, group in ready],
        "decisions": [
            f"{row['at']:.0f} s, {row['reason']}: {row['sentence']}"
            for row in seen["decisions"]["rows"]
            if row["direction"] != "hold"
        ],
    }


if __name__ == "__main__":
    main("burst", measure)
