"""The burn alerts told as stories: who is called at which share of bad requests, and who is left asleep."""

from pathlib import Path

import pytest
from tests.dashboards.conftest import Programs
from tests.dashboards.rulecases import INTERACTIVE, TTFT, Story, alerts, healthy, told, values

pytestmark = pytest.mark.real

FAST, SLOW, DAY, DAYS = (
    "PacelineTTFTBurnFast",
    "PacelineTTFTBurnSlow",
    "PacelineErrorBudgetTicket/1d",
    "PacelineErrorBudgetTicket/3d",
)
LENGTH = 90


def steady(objective: float, bad_per_mille: int, **other: str) -> Story:
    """A thousand requests a minute, some of them bad, from the first minute to the last."""
    target = {**TTFT, **other}
    story = healthy(LENGTH).promise(objective, LENGTH, **target)
    return story.verdicts(f"0+{1000 - bad_per_mille}x{LENGTH}", f"0+{bad_per_mille}x{LENGTH}", **target)


LIMITS: list[tuple[float, int, set[str]]] = [
    (0.9, 1000, {FAST, SLOW, DAYS}),  # 14.4 budgets would be 144 % of the requests, and never fire
    (0.9, 310, {FAST, SLOW, DAYS}),
    (0.9, 290, {SLOW, DAYS}),
    (0.9, 140, {DAYS}),
    (0.9, 105, {DAYS}),
    (0.9, 95, set()),
    (0.95, 310, {FAST, SLOW, DAY, DAYS}),
    (0.95, 290, {SLOW, DAY, DAYS}),
    (0.95, 170, {SLOW, DAY, DAYS}),
    (0.95, 140, {DAY, DAYS}),
    (0.95, 90, {DAYS}),
    (0.95, 45, set()),
    (0.99, 150, {FAST, SLOW, DAY, DAYS}),
    (0.99, 140, {SLOW, DAY, DAYS}),
    (0.99, 50, {DAY, DAYS}),
    (0.99, 20, {DAYS}),
    (0.99, 9, set()),
    (0.999, 15, {FAST, SLOW, DAY, DAYS}),
    (0.999, 14, {SLOW, DAY, DAYS}),
    (0.999, 5, {DAY, DAYS}),
    (0.999, 2, {DAYS}),
    (0.999, 0, set()),
    (0.5, 1000, {DAYS}),  # no limit above half of the requests: a ticket is all there is
    (0.5, 490, set()),
    (1.0, 1, {FAST, SLOW, DAY, DAYS}),
    (1.0, 0, set()),
]


def test_limits_are_multiples_of_the_budget_capped_at_what_can_happen(programs: Programs, tmp_path: Path) -> None:
    """One service for each row, with that objective and that many bad requests in a thousand."""
    story, expected = healthy(LENGTH), set()
    for index, (objective, bad_per_mille, fired) in enumerate(LIMITS):
        name = f"s{index}-{objective}-{bad_per_mille}"
        story.series |= steady(objective, bad_per_mille, pisvc=name).series
        expected |= {f"{name}: {alert}" for alert in fired}
    alerts(programs, tmp_path, story, {LENGTH: expected}, by_service=True)


@pytest.mark.parametrize(
    ("slo", "indicator"), [("tpot_p99", "TPOT"), ("e2e_p95", "E2E"), ("availability", "Availability")]
)
def test_each_indicator_has_its_own_pages(programs: Programs, tmp_path: Path, slo: str, indicator: str) -> None:
    story = steady(0.95, 500, slo=slo)
    expected = {f"Paceline{indicator}BurnFast", f"Paceline{indicator}BurnSlow", DAY, DAYS}
    alerts(programs, tmp_path, story, {LENGTH: expected})


def test_a_few_bad_requests_at_night_wake_nobody(programs: Programs, tmp_path: Path) -> None:
    """All requests of an hour are bad; what differs is how many there were."""
    story = healthy(LENGTH)
    for name, minutes in (("eleven", 4), ("six", 7), ("one", 25)):
        target = {**TTFT, "pisvc": name}
        counted = " ".join(str(minute // minutes) for minute in range(LENGTH + 1))
        story.promise(0.95, LENGTH, **target).verdicts(f"7x{LENGTH}", counted, **target)
    woken = {f"eleven: {alert}" for alert in (FAST, SLOW, DAY, DAYS)}
    expected = {*woken, f"six: {DAY}", f"six: {DAYS}"}
    alerts(programs, tmp_path, story, {46: expected}, by_service=True)


def test_a_page_ends_soon_after_the_trouble_does(programs: Programs, tmp_path: Path) -> None:
    story = healthy(120).promise(0.95, 120, **TTFT)
    story.verdicts("0+0x60 0+100x60", "0+100x60 6000x60", **TTFT)
    alerts(programs, tmp_path, story, {60: {FAST, SLOW, DAY, DAYS}, 70: {SLOW, DAY, DAYS}, 119: {DAY, DAYS}})


def test_a_short_burst_after_good_hours_pages_nobody(programs: Programs, tmp_path: Path) -> None:
    story = healthy(200).promise(0.95, 200, **TTFT)
    story.verdicts("0+1000x191 191000x8", "0x191 0+1000x8", **TTFT)
    alerts(programs, tmp_path, story, {199: set()})


def test_no_traffic_is_no_number_and_no_alert(programs: Programs, tmp_path: Path) -> None:
    story = healthy(LENGTH).promise(0.95, LENGTH, **TTFT).verdicts(f"5x{LENGTH}", f"5x{LENGTH}", **TTFT)
    alerts(programs, tmp_path, story, {LENGTH: set()})
    values(programs, tmp_path, story, LENGTH, {"paceline:slo_bad:ratio1h": {}, "paceline:slo_burn:ratio1h": {}})


def test_a_target_without_an_objective_is_no_alert(programs: Programs, tmp_path: Path) -> None:
    story = healthy(LENGTH).verdicts("0x90", f"0+100x{LENGTH}", **TTFT)
    alerts(programs, tmp_path, story, {LENGTH: set()})


def test_a_service_that_fails_everything_burns_availability_and_latency(programs: Programs, tmp_path: Path) -> None:
    story = healthy(LENGTH)
    for slo in ("ttft_p95", "availability"):
        target = {**INTERACTIVE, "slo": slo}
        story.promise(0.99, LENGTH, **target)
        story.verdicts(f"0x{LENGTH}", f"0+10x{LENGTH}", verdict="bad_failed", **target)
    available = {"PacelineAvailabilityBurnFast", "PacelineAvailabilityBurnSlow"}
    alerts(programs, tmp_path, story, {LENGTH: {FAST, SLOW, *available, DAY, DAYS}})


def test_gateways_that_vanish_are_told_of_where_their_burn_no_longer_is(programs: Programs, tmp_path: Path) -> None:
    story = healthy(120, "paceline_demand_subscribers").promise(0.95, 60, **TTFT)
    story.add("paceline_demand_subscribers", "1x60 stale")
    story.verdicts("0x60 stale", "0+100x60 stale", **TTFT)
    alerts(programs, tmp_path, story, {60: {FAST, SLOW, DAY, DAYS}, 80: {"PacelineGatewayDown"}})


def test_two_gateways_are_one_service(programs: Programs, tmp_path: Path) -> None:
    """One in five is bad at one of them, none at the other: one in ten altogether."""
    story = healthy(LENGTH)
    for pod, bad in (("gw-0", 200), ("gw-1", 0)):
        story.promise(0.95, LENGTH, pod=pod, **TTFT)
        story.verdicts(f"0+{1000 - bad}x{LENGTH}", f"0+{bad}x{LENGTH}", pod=pod, **TTFT)
    place = '{pisvc_namespace="default", pisvc="chat", class="interactive", slo="ttft_p95"}'
    expected = {
        "round(paceline:slo_bad:ratio1h, 1e-6)": {place: 0.1},
        "round(paceline:slo_burn:ratio1h, 1e-6)": {place: 2.0},
        "round(paceline:slo_judged:increase1h)": {f"{place}": 120000.0},
    }
    values(programs, tmp_path, story, LENGTH, expected)
    alerts(programs, tmp_path, story, {LENGTH: {DAYS}})


def test_recorded_series_carry_the_target_alone_and_none_of_the_scrapes_labels(
    programs: Programs, tmp_path: Path
) -> None:
    place = '{pisvc_namespace="default", pisvc="chat", class="interactive", slo="ttft_p95"}'
    names = ("bad:ratio5m", "bad:ratio3d", "objective:ratio", "budget:ratio", "fast:ratio", "burn:ratio6h")
    expected = {f"0 * paceline:slo_{name}": {place: 0.0} for name in names}
    values(programs, tmp_path, steady(0.95, 200), LENGTH, expected)


def test_while_gateways_disagree_the_strictest_objective_counts(programs: Programs, tmp_path: Path) -> None:
    story = steady(0.9, 95).promise(0.99, LENGTH, pod="gw-1", **TTFT)
    alerts(programs, tmp_path, story, {LENGTH: {SLOW, DAY, DAYS}})


def test_a_gateway_that_starts_anew_is_no_burst(programs: Programs, tmp_path: Path) -> None:
    story = healthy(LENGTH).promise(0.95, LENGTH, **TTFT)
    story.verdicts("500000+1000x45 0+1000x44", "40000+10x45 0+10x44", **TTFT)
    alerts(programs, tmp_path, story, {LENGTH: set()})


def test_services_classes_and_targets_do_not_answer_for_each_other(programs: Programs, tmp_path: Path) -> None:
    story = steady(0.95, 500)
    neighbours = ({**TTFT, "pisvc": "other"}, {**TTFT, "class": "batch"}, {**TTFT, "slo": "ttft_p99"})
    for neighbour in neighbours:
        story.promise(0.95, LENGTH, **neighbour).verdicts(f"0+1000x{LENGTH}", f"0x{LENGTH}", **neighbour)
    fired = f'ALERTS{{alertname="{FAST}", alertstate="firing"}}'
    labels = 'alertname="PacelineTTFTBurnFast", alertstate="firing", severity="page", class="interactive"'
    place = 'pisvc_namespace="default", pisvc="chat", slo="ttft_p95"'
    values(programs, tmp_path, story, LENGTH, {fired: {f"ALERTS{{{labels}, {place}}}": 1.0}})


def test_the_message_says_how_bad_it_is_and_how_long_a_budget_lasts(programs: Programs, tmp_path: Path) -> None:
    alert = {
        "exp_labels": {"severity": "page", **TTFT},
        "exp_annotations": {
            "summary": "default/chat breaks its promise ttft_p95",
            "description": "50% of the interactive requests of the last 1h missed ttft_p95; the promise leaves room "
            "for 5%. At this rate a whole budget is gone in 2d 19h 12m 0s.",
            "runbook_url": "https://paceline.dev/docs/runbooks/PacelineTTFTBurnFast.md",
        },
    }
    case = {"eval_time": f"{LENGTH}m", "alertname": FAST, "exp_alerts": [alert]}
    told(programs, tmp_path, steady(0.95, 500), [], [case])


def test_without_a_window_the_message_says_that_it_does_not_know(programs: Programs, tmp_path: Path) -> None:
    story = steady(0.95, 500)
    story.series = {name: text for name, text in story.series.items() if "window_seconds" not in name}
    alerts(programs, tmp_path, story, {LENGTH: {FAST, SLOW, DAY, DAYS}})
    values(programs, tmp_path, story, LENGTH, {"paceline:slo_exhaustion:seconds1h": {}})
