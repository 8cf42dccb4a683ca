"""Every query of every board against a real Prometheus, scraped as in a cluster: target labels on, honor_labels off."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from tests.autoscaler.conftest import Page
from tests.dashboards.conftest import Programs
from tests.dashboards.plausible import BAD, GATEWAYS, JUDGED, OBJECTIVE, TTFT_PROMISE_S, Process
from tests.dashboards.rulecases import ROOT
from tests.prometheus_server import prometheus_server
from tools.dashboards import boards, queries

pytestmark = pytest.mark.real

PARTS = {
    **dict.fromkeys(GATEWAYS, "gateway"),
    "chat-main-0": "worker",
    "autoscaler-0": "autoscaler",
    "op-0": "operator",
}
TARGET = {"pisvc_namespace": "default", "pisvc": "chat", "class": "interactive", "slo": "ttft_p95"}
TTFT = ", ".join(f'{label}="{value}"' for label, value in TARGET.items())
LIMIT_S = 60.0


@dataclass(frozen=True)
class Prometheus:
    """A running server."""

    http: httpx.Client

    def ask(self, expr: str) -> list[dict[str, Any]]:
        """The samples of an expression that no version has a remark on."""
        reply = self.http.post("/api/v1/query", data={"query": expr}).json()
        assert reply["status"] == "success", f"{expr}: {reply}"
        assert not reply.get("warnings") and not reply.get("infos"), f"{expr}: {reply}"  # noqa: PT018 - one remark
        return list(reply["data"]["result"])

    def number(self, expr: str) -> float:
        """The value of the only sample."""
        [sample] = self.ask(expr)
        return float(sample["value"][1])


@pytest.fixture(scope="module")
def prometheus(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Two gateways, a worker, an autoscaler and an operator; scraped at zero, then again after they have worked."""
    processes = {name: Process(owner) for name, owner in PARTS.items()}
    pages = {name: Page(body=process.page()) for name, process in processes.items()}
    with serving(programs, tmp_path_factory.mktemp("prometheus"), pages) as server:
        until(lambda: len(server.ask("count_over_time(up[1m]) >= 3")) == len(PARTS))
        for name, process in processes.items():
            process.work()
            pages[name].body = process.page()
        worked = 'max by (pod) ({__name__=~"paceline_.+_total", pisvc!="idle"}) > 0'
        until(lambda: len(server.ask(worked)) == len(PARTS))
        evaluated(server, after=server.number("vector(time())") + 2)
        yield server
    for page in pages.values():
        page.stop()


def evaluated(server: Prometheus, after: float) -> None:
    """Wait until what is evaluated last has been: rules over the longest windows, and the alerts on them."""
    slowest = (
        f"paceline:slo_exhaustion:seconds3d{{{TTFT}}}",
        f'ALERTS{{alertname="PacelineTTFTBurnSlow", {TTFT}}}',
        "paceline:replicas_missing:count",
        "paceline:cold_start:seconds",
    )
    until(lambda: all(server.ask(f"timestamp({expr}) > {after}") for expr in slowest))


@contextmanager
def serving(programs: Programs, folder: Path, pages: dict[str, Page]) -> Iterator[Prometheus]:
    """A Prometheus with our rules, that scrapes and evaluates each second."""
    with (
        prometheus_server(programs.prometheus, folder, _config(folder, pages)) as url,
        httpx.Client(base_url=url, timeout=10, trust_env=False) as http,
    ):
        yield Prometheus(http)


def until(good: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not good():
        assert time.monotonic() < deadline, f"not so within {LIMIT_S:g} s"
        time.sleep(0.2)


def _config(folder: Path, pages: dict[str, Page]) -> dict[str, Any]:
    for path in (ROOT / "dashboards" / "rules").glob("*.yaml"):
        rules = yaml.safe_load(path.read_text())
        for group in rules["groups"]:
            group["interval"] = "1s"
        (folder / path.name).write_text(yaml.safe_dump(rules))
    targets = [
        {
            "targets": [page.host],
            "labels": {"namespace": "paceline-system", "service": "paceline-gateway-admin", "pod": name},
        }
        for name, page in pages.items()
    ]
    return {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "rule_files": [str(folder / "paceline-*.yaml")],
        "scrape_configs": [{"job_name": "paceline", "honor_labels": False, "static_configs": targets}],
    }


def panel(title: str, service: str = "chat") -> list[str]:
    """The queries of one panel."""
    asked = [query for board in boards() for query in queries(board, "default", service)]
    return [query.expr for query in asked if query.panel == title]


def test_every_query_of_every_panel_answers_with_numbers(prometheus: Prometheus) -> None:
    asked = [query for board in boards() for query in queries(board, "default", "chat", "interactive|batch")]
    mute = []
    for query in asked:
        found = [float(sample["value"][1]) for sample in prometheus.ask(query.expr)]
        if not found or all(map(math.isnan, found)):
            mute.append(f"{query.panel}: {query.expr}")
    assert mute == []
    assert len(asked) > 80


def test_an_idle_service_has_no_numbers_where_there_are_none_and_only_quantiles_are_nan(
    prometheus: Prometheus,
) -> None:
    for board in boards():
        for query in queries(board, "default", "idle"):
            found = [float(sample["value"][1]) for sample in prometheus.ask(query.expr)]
            assert "histogram_quantile" in query.expr or not any(map(math.isnan, found)), query


def test_a_service_that_is_not_there_is_an_empty_board(prometheus: Prometheus) -> None:
    service = boards()[0]
    answers = {query.expr: prometheus.ask(query.expr) for query in queries(service, "default", "nobody")}
    assert {expr: found for expr, found in answers.items() if found} == {}


def test_marks_of_decisions_are_set_where_replicas_changed(prometheus: Prometheus) -> None:
    for board in boards():
        marks = {mark.name: mark.expr.replace("$namespace", "default") for mark in board.annotations}
        found = {name: prometheus.ask(expr.replace("$service", "chat")) for name, expr in marks.items()}
        assert [sample["metric"] for sample in found["Up"]] == [
            {"pisvc_namespace": "default", "pisvc": "chat", "pool": "main"}
        ]
        assert found["Down"] == []
        assert {sample["metric"]["reason"] for sample in found["Why"]} == {"demand"}


def test_the_p95_of_the_first_token_is_the_one_computed_by_hand(prometheus: Prometheus) -> None:
    """60 of 100 within (0.25, 0.4], 40 within (0.63, 1]: the 95th is 35/40 into the last bucket."""
    p50, p95, _, promised = panel("TTFT")
    assert prometheus.number(p95) == pytest.approx(0.63 + 0.37 * 35 / 40)
    assert prometheus.number(p50) == pytest.approx(0.25 + 0.15 * 50 / 60)
    thresholds = {sample["metric"]["slo"]: float(sample["value"][1]) for sample in prometheus.ask(promised)}
    assert thresholds == {"ttft_p95": TTFT_PROMISE_S}


def test_bad_share_and_burn_are_those_computed_by_hand(prometheus: Prometheus) -> None:
    share = BAD / JUDGED
    for window in ("5m", "1h", "3d"):
        becomes(prometheus, f"paceline:slo_bad:ratio{window}{{{TTFT}}}", share)
        becomes(prometheus, f"paceline:slo_burn:ratio{window}{{{TTFT}}}", share / (1 - OBJECTIVE))
    becomes(prometheus, f"paceline:slo_exhaustion:seconds1h{{{TTFT}}}", 28 * 86400 / 4)
    [kept] = panel("Kept, 1 h")
    becomes(prometheus, kept, 1 - share)


def becomes(prometheus: Prometheus, expr: str, expected: float) -> None:
    """A scrape that is stored between two rules of one evaluation makes their ratio uneven until the next one."""
    until(lambda: prometheus.number(expr) == pytest.approx(expected))


def test_both_gateways_are_counted_once_each(prometheus: Prometheus) -> None:
    """increase() reaches at most one scrape beyond what it saw, so 100 requests are 100 and a little."""
    judged = prometheus.number(f"paceline:slo_judged:increase1h{{{TTFT}}}")
    assert 2 * JUDGED * 0.99 <= judged <= 2 * JUDGED * 1.5


def test_recorded_series_carry_the_target_and_no_label_of_the_scrape(prometheus: Prometheus) -> None:
    found = prometheus.ask('{__name__=~"paceline:slo_.*", pisvc="chat"}')
    assert {frozenset(sample["metric"]) - {"__name__"} for sample in found} == {frozenset(TARGET)}
    assert prometheus.ask('{__name__=~"paceline.*", exported_namespace!=""}') == []


def test_a_fifth_of_bad_requests_is_on_its_way_to_the_slow_page_alone(prometheus: Prometheus) -> None:
    found = prometheus.ask(f'ALERTS{{alertname=~"PacelineTTFT.*", {TTFT}}}')
    assert {(s["metric"]["alertname"], s["metric"]["alertstate"]) for s in found} == {
        ("PacelineTTFTBurnSlow", "pending")
    }


def test_no_rule_fails(prometheus: Prometheus) -> None:
    reply = prometheus.http.get("/api/v1/rules").json()
    rules = [rule for group in reply["data"]["groups"] for rule in group["rules"]]
    assert [rule["name"] for rule in rules if rule["health"] != "ok"] == []
    assert len(rules) > 60
