"""What a reader of a board may rely on: dashboard-linter's rules and ours, over the JSON that is committed."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from tests.every import every
from tools.dashboards import all_alerts, boards
from tools.dashboards.panels import metrics_in, queries
from tools.dashboards.promql import labels_of
from tools.dashboards.rules import RUNBOOKS

from paceline_core.registry import METRICS, Kind

ROOT = Path(__file__).parents[2]
FILES = {board.uid: json.loads((ROOT / "dashboards" / f"{board.uid}.json").read_text()) for board in boards()}
BOARD = every(FILES.values(), lambda board: str(board["uid"]))
PANELS = [(uid, panel) for uid, board in FILES.items() for panel in board["panels"] if panel["type"] != "row"]
PANEL = every([panel for _, panel in PANELS], lambda panel: str(panel["title"]))
UNITS = {"none", "s", "reqps", "percentunit", "currencyUSD", "bytes", "Bps"}
AGGREGATE = re.compile(r"\b(?:sum|min|max|avg) by \(([^)]*)\)")


def expressions(panel: dict[str, Any]) -> list[str]:
    return [target["expr"] for target in panel["targets"]]


def variables(board: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {variable["name"]: variable for variable in board["templating"]["list"]}


@BOARD
def test_a_board_says_what_it_is_for_and_is_not_edited_by_hand(board: dict[str, Any]) -> None:
    assert board["title"].startswith("paceline / ")
    assert board["description"]
    assert board["editable"] is False
    assert board["tags"] == ["paceline"]
    assert 39 <= board["schemaVersion"] <= 42
    assert "id" not in board


@BOARD
def test_a_board_refreshes_and_starts_with_a_short_past(board: dict[str, Any]) -> None:
    assert board["refresh"] == "30s"
    assert board["time"] == {"from": "now-3h", "to": "now"}


@BOARD
def test_the_data_source_is_the_readers_choice(board: dict[str, Any]) -> None:
    assert variables(board)["datasource"]["query"] == "prometheus"
    asking = [*board["annotations"]["list"], *(v for v in variables(board).values() if v["type"] == "query")]
    for panel in board["panels"]:
        asking += [panel, *panel["targets"]] if panel["type"] != "row" else []
    assert {one["datasource"]["uid"] for one in asking} <= {"${datasource}", "-- Grafana --"}


@BOARD
def test_variables_come_from_series_that_exist_and_refresh_with_the_time(board: dict[str, Any]) -> None:
    for name, variable in variables(board).items():
        if name == "datasource":
            continue
        series, label = re.fullmatch(r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", variable["query"]).groups()  # type: ignore[union-attr]
        assert label in labels_of(series)
        assert variable["refresh"] == 2
        assert variable["multi"]
        assert variable["includeAll"]
        assert variable["allValue"] == ".*"


def test_a_service_is_chosen_alike_on_every_board_and_a_class_where_there_are_classes() -> None:
    chosen = {uid: set(variables(board)) for uid, board in FILES.items()}
    common = {"datasource", "namespace", "service"}
    by_class = common | {"class"}
    assert chosen == {"paceline-service": by_class, "paceline-control": common, "paceline-tenants": by_class}


def test_every_variable_that_a_query_or_a_link_uses_is_one_that_its_board_has() -> None:
    missing = {
        f"{uid}: ${name}"
        for uid, board in FILES.items()
        for name in re.findall(r"\$\{?(?!__)(\w+)", json.dumps([board["panels"], board["annotations"], board["links"]]))
        if name not in variables(board)
    }
    assert missing == set()


@BOARD
def test_boards_link_to_each_other_and_keep_time_and_variables(board: dict[str, Any]) -> None:
    [link] = board["links"]
    assert (link["type"], link["tags"]) == ("dashboards", ["paceline"])
    assert link["keepTime"]
    assert link["includeVars"]


@BOARD
def test_ids_are_unique_and_come_from_titles(board: dict[str, Any]) -> None:
    ids = Counter(panel["id"] for panel in board["panels"])
    assert max(ids.values()) == 1
    assert all(0 < number < 2**31 for number in ids)


def test_an_id_does_not_change_when_panels_are_added_before_it() -> None:
    ids = {panel["title"]: panel["id"] for _, panel in PANELS}
    assert ids["TTFT"] == 1650318965


@BOARD
def test_panels_stay_on_the_grid_and_apart(board: dict[str, Any]) -> None:
    taken = Counter(
        (x, y)
        for place in (panel["gridPos"] for panel in board["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    )
    assert max(taken.values()) == 1
    assert max(x for x, _ in taken) == 23


@PANEL
def test_a_panel_says_what_it_shows_from_which_metric(panel: dict[str, Any]) -> None:
    assert panel["title"]
    text = panel["description"]
    for name in {name for expr in expressions(panel) for name in re.findall(r"\bpaceline[_:][a-z0-9_:]+", expr)}:
        assert f"`{name}`" in text
    assert text.count(".") >= 3


@PANEL
def test_a_runbook_that_a_panel_names_exists(panel: dict[str, Any]) -> None:
    for page in re.findall(rf"\({re.escape(RUNBOOKS)}/([^)]+)\)", panel["description"]):
        assert (ROOT / "docs" / "runbooks" / page).is_file()


@PANEL
def test_a_panel_has_a_unit_and_words_for_no_value(panel: dict[str, Any]) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    assert defaults["unit"] in UNITS
    assert defaults["noValue"]
    [mapping] = defaults["mappings"]
    assert mapping["options"] == {"match": "nan", "result": {"text": defaults["noValue"]}}


@PANEL
def test_no_counter_is_shown_raw(panel: dict[str, Any]) -> None:
    for expr in expressions(panel):
        for name in re.findall(r"\bpaceline_[a-z0-9_]+(?:_total|_bucket|_sum|_count)\b", expr):
            every = len(re.findall(rf"\b{name}\b", expr))
            assert len(re.findall(rf"\b(?:rate|increase)\({name}\b", expr)) == every


@PANEL
def test_rates_are_taken_over_the_rate_interval(panel: dict[str, Any]) -> None:
    for expr in expressions(panel):
        assert set(re.findall(r"(?:rate|increase)\([^\[]*\[([^\]]+)\]", expr)) <= {"$__rate_interval"}


@PANEL
def test_a_ratio_of_rates_divides_by_what_is_above_zero(panel: dict[str, Any]) -> None:
    for expr in expressions(panel):
        for divisor in expr.split(" / ")[1:]:
            assert re.match(r"(?:ignoring \(state\) group_left \(\) )?\(.* > 0\)", divisor)


@PANEL
def test_a_query_is_narrowed_to_the_choice_wherever_its_series_can_be(panel: dict[str, Any]) -> None:
    for expr in expressions(panel):
        for name, matchers in re.findall(r"\b(paceline[_:][a-z0-9_:]+)(\{[^}]*\})?", expr):
            if "pisvc" in labels_of(name):
                assert 'pisvc_namespace=~"$namespace", pisvc=~"$service"' in matchers
            if "class" in labels_of(name):
                assert 'class=~"$class"' in matchers


@PANEL
def test_every_query_of_a_panel_can_be_told_apart(panel: dict[str, Any]) -> None:
    refs = [target["refId"] for target in panel["targets"]]
    assert len(set(refs)) == len(refs)
    legends = [target["legendFormat"] for target in panel["targets"]]
    assert all(legends)
    assert len(set(legends)) == len(legends)


@PANEL
def test_a_legend_names_only_labels_that_the_query_keeps(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        kept = {label.strip() for group in AGGREGATE.findall(target["expr"])[:1] for label in group.split(",")}
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= kept


def test_latency_panels_show_what_is_promised_beside_what_is() -> None:
    promised = {panel["title"] for _, panel in PANELS if "paceline_slo_threshold_seconds" in str(expressions(panel))}
    assert promised == {"TTFT", "TPOT", "End to end"}


@BOARD
def test_decisions_are_marked_on_the_time_axis(board: dict[str, Any]) -> None:
    marks = {mark["name"]: mark["expr"] for mark in board["annotations"]["list"] if "expr" in mark}
    assert marks.keys() == {"Up", "Down", "Why"}
    assert "paceline_autoscaler_decisions_total" in marks["Why"]


def test_every_metric_is_on_a_board() -> None:
    """The window of a budget is a divisor in a rule.

    Of the workers' some are there for vLLM's names, and the gateway's own tell the same of what clients get.
    """
    shown = {name for board in boards() for panel in board.panels for name in metrics_in(panel.queries)}
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown} | shown
    wanted = set(METRICS)
    recorded = {"paceline_slo_requests_total", "paceline_slo_objective_ratio", "paceline_slo_window_seconds"}
    told_by_gateways = {f"paceline_worker_{name}_seconds" for name in ("ttft", "itl", "tpot", "duration")}
    for_vllm = {"paceline_worker_request_tokens", "paceline_worker_request_choices", "paceline_scheduler_step_tokens"}
    coarse = {"paceline_worker_requests_total", "paceline_scheduler_steps_total", "paceline_kv_page_tokens"}
    marks = {"paceline_emulated", "paceline_step_time_coefficient", "paceline_demand_subscribers"}
    assert wanted - families == recorded | told_by_gateways | for_vllm | coarse | marks


def test_every_alert_is_named_by_a_panel_or_is_about_no_panel() -> None:
    named = {panel.runbook for board in boards() for panel in board.panels}
    unseen = {alert.name for alert in all_alerts()} - named
    pairs = {"PacelineE2EBurnSlow"}  # beside its fast twin
    assert unseen - pairs == {"PacelineGatewayDown", "PacelineWatchdog"}


def test_queries_have_no_variable_left_and_say_which_panel_asks() -> None:
    for board in boards():
        found = queries(board, namespace="default", service="chat", request_class="interactive", interval="30s")
        assert len(found) == sum(len(panel.queries) for panel in board.panels)
        assert not [query for query in found if "$" in query.expr]
        assert {query.panel for query in found} == {panel.title for panel in board.panels}
        assert any('pisvc=~"chat"' in query.expr for query in found)


def test_histograms_are_read_by_bucket_sum_and_count_alone() -> None:
    for board in boards():
        for panel in board.panels:
            for name in metrics_in(panel.queries):
                assert name not in METRICS or METRICS[name].kind is not Kind.HISTOGRAM
