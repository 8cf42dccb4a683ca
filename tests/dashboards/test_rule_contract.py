"""What every rule keeps, read from the committed file: names exist, windows are wide, pages have runbooks."""

import re
from pathlib import Path
from typing import Any

import yaml
from tests.every import every
from tools.dashboards import boards
from tools.dashboards.promql import RECORDED, labels_of
from tools.dashboards.rules import runbook_url

from paceline_core.registry import METRICS, Kind

ROOT = Path(__file__).parents[2]
GROUPS = [
    group
    for path in sorted((ROOT / "dashboards" / "rules").glob("*.yaml"))
    for group in yaml.safe_load(path.read_text())["groups"]
]
RULES: list[dict[str, Any]] = [rule for group in GROUPS for rule in group["rules"]]
RECORDS = [rule for rule in RULES if "record" in rule]
ALERTS = [rule for rule in RULES if "alert" in rule]
RULE = every(RULES, lambda rule: str(rule.get("record") or rule["alert"]))
ALERT = every(ALERTS, lambda alert: str(alert["alert"]))
NAME = re.compile(r"\bpaceline[_:][a-z0-9_:]+")
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
SCRAPE_S = 30
SECTIONS = ["Meaning", "Impact", "Diagnosis", "Mitigation"]
PAGES = sorted((ROOT / "docs" / "runbooks").glob("*.md"))


@RULE
def test_a_rule_reads_only_series_that_somebody_writes(rule: dict[str, Any]) -> None:
    names = NAME.findall(rule["expr"])
    assert names or rule["alert"] == "PacelineWatchdog"
    for name in names:
        assert labels_of(name) is not None


@RULE
def test_a_matcher_names_a_label_that_the_series_has(rule: dict[str, Any]) -> None:
    for name, inside in re.findall(r"\b(paceline[_:][a-z0-9_:]+)\{([^}]*)\}", rule["expr"]):
        assert {matcher.split("=")[0].strip("! ") for matcher in inside.split(",")} <= set(labels_of(name))


@RULE
def test_a_window_holds_four_scrapes(rule: dict[str, Any]) -> None:
    for count, unit in re.findall(r"\[(\d+)([smhd])\]", rule["expr"]):
        assert int(count) * SECONDS[unit] >= 4 * SCRAPE_S


@RULE
def test_a_bucket_that_a_rule_names_is_an_edge(rule: dict[str, Any]) -> None:
    """No rule names one today: verdicts are counters. One that will must name an edge as it is exported."""
    edges = {str(edge) for row in METRICS.values() for edge in row.buckets} | {"+Inf"}
    assert set(re.findall(r'le="([^"]*)"', rule["expr"])) <= edges


def test_recorded_series_are_those_that_boards_may_name() -> None:
    assert sorted(rule["record"] for rule in RECORDS) == sorted(RECORDED)


@every(RECORDS, lambda rule: str(rule["record"]))
def test_a_recorded_name_says_level_metric_and_operation(rule: dict[str, Any]) -> None:
    assert re.fullmatch(r"paceline:[a-z_]+:[a-z]+[0-9]*[mhd]?", rule["record"])


@every(RECORDS, lambda rule: str(rule["record"]))
def test_a_recorded_series_keeps_the_labels_it_says(rule: dict[str, Any]) -> None:
    grouped = re.search(r"^(?:sum|max|clamp_min\(max) by \(([^)]*)\)", rule["expr"])
    if grouped and "group_right" not in rule["expr"]:
        assert tuple(grouped[1].split(", ")) == RECORDED[rule["record"]]


def test_slow_groups_are_still_faster_than_staleness() -> None:
    assert {group["interval"] for group in GROUPS if "interval" in group} == {"2m"}


@ALERT
def test_an_alert_has_a_severity_a_text_and_a_runbook(alert: dict[str, Any]) -> None:
    assert alert["labels"]["severity"] in {"page", "ticket", "info", "none"}
    assert alert["annotations"]["runbook_url"] == runbook_url(alert["alert"])
    assert alert["annotations"]["summary"]
    assert alert["annotations"]["description"].endswith(".")


@ALERT
def test_a_text_uses_only_labels_that_the_alert_has(alert: dict[str, Any]) -> None:
    used = set(re.findall(r"\$labels\.(\w+)", "".join(alert["annotations"].values())))
    kept = {label.strip() for group in re.findall(r"by \(([^)]*)\)", alert["expr"]) for label in group.split(",")}
    kept |= {label for name in NAME.findall(alert["expr"]) if name in RECORDED for label in RECORDED[name]}
    assert used <= kept


def test_alerts_and_runbooks_are_the_same_set() -> None:
    assert {path.stem for path in PAGES} == {alert["alert"] for alert in ALERTS}


@every(PAGES, lambda page: page.stem)
def test_a_runbook_has_four_sections_and_fits_a_screen(page: Path) -> None:
    text = page.read_text()
    assert text.startswith(f"# {page.stem}\n")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == SECTIONS
    assert len(text.splitlines()) <= 50


@every(PAGES, lambda page: page.stem)
def test_a_runbook_points_at_boards_panels_and_alerts_that_exist(page: Path) -> None:
    text = " ".join(page.read_text().split())
    titles = {board.title for board in boards()}
    known = {panel.title for board in boards() for panel in board.panels}
    assert set(re.findall(r"`(paceline / [^`]*)`", text)) <= titles
    pointed = re.findall(r"(?:[Pp]anels?|[Tt]able) ((?:`[^`]+`(?:,| and)? ?)+)", text)
    assert {title for group in pointed for title in re.findall(r"`([^`]+)`", group)} <= known
    assert set(re.findall(r"\bPaceline\w+", text)) <= {path.stem for path in PAGES}


def test_pages_and_rules_use_nothing_newer_than_prometheus_2_42() -> None:
    newer = ("histogram_avg", "histogram_fraction", "sort_by_label", "mad_over_time", "query_offset", "info(")
    text = "".join(str(rule) for rule in RULES)
    assert [word for word in newer if word in text] == []


def test_only_counters_are_taken_a_rate_of() -> None:
    for rule in RULES:
        for name in re.findall(r"(?:rate|increase)\((paceline_[a-z0-9_]+)", rule["expr"]):
            assert METRICS[name].kind is Kind.COUNTER
