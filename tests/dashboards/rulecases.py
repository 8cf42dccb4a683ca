"""A story of series, told to `promtool test rules`, and which alerts fire in it.

The series carry what a scrape with `honor_labels: false` adds: the target's own `namespace`, `service`, `pod`,
`instance` and `job`, beside the service that they are about.
"""

import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from tests.dashboards.conftest import Programs

ROOT = Path(__file__).parents[2]
RULES = sorted(str(path) for path in (ROOT / "dashboards" / "rules").glob("*.yaml"))
CHAT = {"pisvc_namespace": "default", "pisvc": "chat"}
INTERACTIVE = {**CHAT, "class": "interactive"}
TTFT = {**INTERACTIVE, "slo": "ttft_p95"}
POOL = {**CHAT, "pool": "main"}
HOURS = 60
FIRING = 'group by (alertname, window, signal{also}) (ALERTS{{alertstate="firing", alertname!="PacelineWatchdog"}})'
Series = dict[str, str]


@dataclass
class Story:
    """Series by minute, from 0; healthy neighbours keep the alerts on absence quiet unless they are left out."""

    series: Series = field(default_factory=dict)

    def add(self, name: str, values: str, *, pod: str = "gw-0", **labels: str) -> "Story":
        """One series in promtool's notation: `0+10x60` is 0, 10, 20 ... at 61 minutes."""
        self.series[scraped(name, labels, pod)] = values
        return self

    def promise(self, objective: float, minutes: int, *, pod: str = "gw-0", **target: str) -> "Story":
        """What a gateway exports of a target, and the window of its budget."""
        self.add("paceline_slo_objective_ratio", f"{objective}x{minutes}", pod=pod, **target)
        place = {label: value for label, value in target.items() if label != "slo"}
        return self.add("paceline_slo_window_seconds", f"{28 * 86400}x{minutes}", pod=pod, **place)

    def verdicts(self, good: str, bad: str, *, pod: str = "gw-0", verdict: str = "bad_ttft", **target: str) -> "Story":
        """The two counters of a target."""
        self.add("paceline_slo_requests_total", good, pod=pod, verdict="good", **target)
        return self.add("paceline_slo_requests_total", bad, pod=pod, verdict=verdict, **target)


def healthy(minutes: int, *without: str) -> Story:
    """All parts there and well, but for the metrics named."""
    parts = {
        "paceline_demand_subscribers": f"1x{minutes}",
        "paceline_autoscaler_last_success_timestamp_seconds": f"0+60x{minutes}",
        "paceline_operator_leader": f"1x{minutes}",
    }
    return Story({scraped(name, {}, "part-0"): values for name, values in parts.items() if name not in without})


def scraped(name: str, labels: Mapping[str, str], pod: str) -> str:
    target = {
        "namespace": "paceline-system",
        "service": "paceline-gateway-admin",
        "pod": pod,
        "instance": f"{pod}:8081",
        "job": "paceline",
    }
    inside = ",".join(f'{label}="{value}"' for label, value in {**target, **labels}.items())
    return f"{name}{{{inside}}}"


def alerts(
    programs: Programs, folder: Path, story: Story, expected: Mapping[int, Iterable[str]], *, by_service: bool = False
) -> None:
    """Fail unless exactly the `expected` alerts fire at each minute: `Name`, `Name/1d` (a ticket's window, a signal's
    name), or with `by_service` `service: Name`.
    """
    asked = FIRING.format(also=", pisvc" if by_service else "")
    samples = {minute: {_sample(name): 1.0 for name in names} for minute, names in expected.items()}
    told(programs, folder, story, [_expression(minute, asked, found) for minute, found in samples.items()])


def values(
    programs: Programs, folder: Path, story: Story, minute: int, expected: Mapping[str, Mapping[str, float]]
) -> None:
    """Fail unless each expression has exactly these samples, label sets included."""
    told(programs, folder, story, [_expression(minute, expr, samples) for expr, samples in expected.items()])


def told(
    programs: Programs,
    folder: Path,
    story: Story,
    expressions: list[dict[str, Any]],
    alert_tests: list[dict[str, Any]] | None = None,
) -> None:
    case = {
        "interval": "1m",
        "input_series": [{"series": name, "values": text} for name, text in story.series.items()],
        "promql_expr_test": expressions,
        "alert_rule_test": alert_tests or [],
    }
    file = folder / "case.yaml"
    file.write_text(yaml.safe_dump({"rule_files": RULES, "evaluation_interval": "1m", "tests": [case]}))
    done = subprocess.run(
        [programs.promtool, "test", "rules", file], capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _expression(minute: int, expr: str, samples: Mapping[str, float]) -> dict[str, Any]:
    found = [{"labels": labels, "value": value} for labels, value in samples.items()]
    return {"expr": expr, "eval_time": f"{minute}m", "exp_samples": found}


def _sample(name: str) -> str:
    service, _, rest = name.rpartition(": ")
    alert, _, detail = rest.partition("/")
    labels = {"alertname": alert, "window" if detail in {"1d", "3d"} else "signal": detail, "pisvc": service}
    return "{" + ", ".join(f'{label}="{value}"' for label, value in labels.items() if value) + "}"
