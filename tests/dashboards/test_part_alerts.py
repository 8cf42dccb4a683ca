"""The alerts on the parts told as stories: each fires as its runbook says, and not in the case that looks alike."""

from pathlib import Path

import pytest
from tests.dashboards.conftest import Programs
from tests.dashboards.rulecases import CHAT, INTERACTIVE, POOL, TTFT, Story, alerts, healthy, told
from tools.dashboards import all_alerts

pytestmark = pytest.mark.real

DOWN, STUCK, FLAPPING = "PacelineServiceDown", "PacelineScaleStuck", "PacelineAutoscalerFlapping"
REPLICAS = "paceline_autoscaler_replicas"
Values = dict[int, set[str]]


def pool(desired: str, ready: str, minutes: int = 60) -> Story:
    story = healthy(minutes)
    for state, values in (("desired", desired), ("ready", ready)):
        story.add(REPLICAS, values, pod="autoscaler-0", state=state, **POOL)
    return story


@pytest.mark.parametrize(
    ("story", "expected"),
    [
        (pool("2x60", "2x20 0x40"), {20: set(), 22: set(), 24: {DOWN}, 50: {DOWN, STUCK}}),
        (pool("2x60", "2x20 1x40"), {24: set(), 40: {STUCK}}),
        (pool("0x60", "0x60"), {59: set()}),  # at zero, as it should be
        (pool("0x30 1x30", "0x38 1x22"), {35: set(), 41: set()}),  # wakes within a cold start
        (pool("0x30 1x30", "0x60"), {38: set(), 44: {STUCK}, 50: {DOWN, STUCK}}),  # never wakes
        (pool("_x60", "_x60"), {59: set()}),
    ],
    ids=["all-gone", "one-gone", "asleep", "wakes", "never-wakes", "no-data"],
)
def test_missing_replicas(programs: Programs, tmp_path: Path, story: Story, expected: Values) -> None:
    alerts(programs, tmp_path, story, expected)


def test_no_alert_outlives_its_service(programs: Programs, tmp_path: Path) -> None:
    """Every alert about a service fires in the minute before it is deleted, and none 6 minutes later."""
    last = 40
    story = pool("2 3 2 3 3x4 " * 5 + "3", f"0x{last}", minutes=60).promise(0.9, last, **TTFT)
    story.verdicts(f"0+80x{last}", f"0+90x{last}", **TTFT)
    story.add("paceline_engine_restarts_total", f"0+1x{last}", pod="w-0", revision="r", **POOL)
    story.add("paceline_queue_oldest_wait_seconds", f"9x{last}", **INTERACTIVE)
    story.add("paceline_slo_threshold_seconds", f"0.5x{last}", **TTFT)
    story.add("paceline_autoscaler_limited_total", f"0+6x{last}", pod="autoscaler-0", limit="max", **CHAT)
    story.add("paceline_autoscaler_signal_age_seconds", f"90x{last}", signal="attainment", **CHAT)
    for state, pages in (("free", 10), ("active", 970)):
        story.add("paceline_kv_pages", f"{pages}x{last}", pod="w-0", state=state, revision="r", **POOL)
    story.add("paceline_scheduler_preemptions_total", f"0+12x{last}", pod="w-0", mode="recompute", **POOL)
    story.series |= {name: f"{text} stale" for name, text in story.series.items() if 'pisvc="chat"' in name}
    about = {DOWN, STUCK, FLAPPING, "PacelineScaleClampedAtMax", "PacelineQueueHeadOfLine", "PacelineKVPressure"}
    about |= {"PacelineEngineRestarts", "PacelineAutoscalerSignalsMissing/attainment", "PacelineTTFTBurnFast"}
    about |= {"PacelineTTFTBurnSlow", "PacelineErrorBudgetTicket/3d"}
    left = {alert.name for alert in all_alerts() if "pisvc" in alert.summary} - _names(about)
    assert left == _TOLD_OF_TTFT | _ABOUT_A_TENANT
    alerts(programs, tmp_path, story, {last: about, last + 6: set()})


_TOLD_OF_TTFT = {f"Paceline{kind}Burn{speed}" for kind in ("TPOT", "E2E", "Availability") for speed in ("Fast", "Slow")}
"""The same expressions over another target."""
_ABOUT_A_TENANT = {"PacelineRequestIsolated"}
"""It tells of a tenant's request, for 15 minutes whatever becomes of the service."""


def _names(fired: set[str]) -> set[str]:
    return {name.partition("/")[0] for name in fired}


def test_a_slow_start_is_given_its_time(programs: Programs, tmp_path: Path) -> None:
    """500 s of stages: no ticket after 10 minutes, but after half an hour."""
    story = pool("1x10 2x50", "1x60")
    for stage, seconds in (("pull", 100), ("weights", 400)):
        story.add("paceline_cold_start_seconds", f"{seconds}x60", pod="w-0", stage=stage, revision="r", **POOL)
    alerts(programs, tmp_path, story, {25: set(), 50: {STUCK}})


@pytest.mark.parametrize(
    ("desired", "expected"),
    [("2 3 2 3 3x4 " * 8, {FLAPPING}), ("2+1x12 14-1x12 2x40", set()), ("2x60", set())],
    ids=["hunts", "rides-a-burst", "stays"],
)
def test_a_pool_that_hunts_is_told_from_one_that_rides_a_burst(
    programs: Programs, tmp_path: Path, desired: str, expected: set[str]
) -> None:
    story = healthy(60).add(REPLICAS, desired, pod="autoscaler-0", state="desired", **POOL)
    alerts(programs, tmp_path, story, {35: expected})


@pytest.mark.parametrize(("bad", "expected"), [("0+20x40", {"PacelineScaleClampedAtMax"}), ("0+4x40", set())])
def test_a_pool_at_its_maximum_is_a_page_only_while_the_promise_burns(
    programs: Programs, tmp_path: Path, bad: str, expected: set[str]
) -> None:
    story = healthy(40).promise(0.9, 40, **TTFT).verdicts("0+80x40", bad, **TTFT)
    story.add("paceline_autoscaler_limited_total", "0+6x40", pod="autoscaler-0", limit="max", **CHAT)
    burning = {"PacelineTTFTBurnSlow", "PacelineErrorBudgetTicket/3d"} if expected else set()
    alerts(programs, tmp_path, story, {39: expected | burning})


def test_a_burning_pool_below_its_maximum_is_left_to_the_autoscaler(programs: Programs, tmp_path: Path) -> None:
    story = healthy(40).promise(0.9, 40, **TTFT).verdicts("0+89x40", "0+11x40", **TTFT)
    story.add("paceline_autoscaler_limited_total", "0+6x40", pod="autoscaler-0", limit="rate", **CHAT)
    alerts(programs, tmp_path, story, {39: {"PacelineErrorBudgetTicket/3d"}})


@pytest.mark.parametrize(
    ("restarts", "expected"),
    [("0x10 1 2 3 4x30", {"PacelineEngineRestarts"}), ("0x10 1x30", set()), ("9x40", set())],
    ids=["crash-loop", "once", "long-ago"],
)
def test_engines_that_end_again_and_again_are_a_ticket(
    programs: Programs, tmp_path: Path, restarts: str, expected: set[str]
) -> None:
    story = healthy(40).add("paceline_engine_restarts_total", restarts, pod="chat-main-0", revision="r", **POOL)
    alerts(programs, tmp_path, story, {15: expected, 40: set()})


@pytest.mark.parametrize(
    ("isolated", "expected"),
    [("0x10 1x30", {"PacelineRequestIsolated"}), ("0x40", set()), ("5x40", set())],
    ids=["first", "none", "long-ago"],
)
def test_the_first_request_that_workers_die_of_is_a_ticket(
    programs: Programs, tmp_path: Path, isolated: str, expected: set[str]
) -> None:
    story = healthy(40).add("paceline_isolated_requests_total", isolated, pod="gateway-0", tenant="team", **CHAT)
    alerts(programs, tmp_path, story, {15: expected, 40: set()})


@pytest.mark.parametrize(("waited", "expected"), [("0.7x20", {"PacelineQueueHeadOfLine"}), ("0.4x20", set())])
def test_a_queue_is_measured_against_its_class_promise(
    programs: Programs, tmp_path: Path, waited: str, expected: set[str]
) -> None:
    story = healthy(20).add("paceline_queue_oldest_wait_seconds", waited, **INTERACTIVE)
    story.add("paceline_queue_oldest_wait_seconds", "900x20", **CHAT, **{"class": "offline"})  # promises nothing
    story.add("paceline_slo_threshold_seconds", "0.5x20", **TTFT)
    alerts(programs, tmp_path, story, {10: expected})


@pytest.mark.parametrize(
    ("free", "cached", "preempted", "expected"),
    [
        ("10x30", "20x30", "0+12x30", {"PacelineKVPressure"}),
        ("10x30", "20x30", "0x30", set()),
        ("10x30", "400x30", "0+12x30", set()),
    ],
    ids=["pressed", "full-but-calm", "full-of-cache"],
)
def test_pages_that_only_the_cache_holds_are_no_pressure(
    programs: Programs, tmp_path: Path, free: str, cached: str, preempted: str, expected: set[str]
) -> None:
    story = healthy(30)
    for state, values in (("free", free), ("cached", cached), ("active", "970x30")):
        story.add("paceline_kv_pages", values, pod="w-0", state=state, revision="r", **POOL)
    story.add("paceline_scheduler_preemptions_total", preempted, pod="w-0", mode="recompute", revision="r", **POOL)
    alerts(programs, tmp_path, story, {29: expected})


def test_an_autoscaler_that_ends_no_pass_is_stalled_and_so_is_one_that_is_gone(
    programs: Programs, tmp_path: Path
) -> None:
    last = "paceline_autoscaler_last_success_timestamp_seconds"
    stalled = {"PacelineAutoscalerStalled"}
    story = healthy(40, last).add(last, "0+60x10 600x29", pod="autoscaler-0")
    alerts(programs, tmp_path, story, {10: set(), 15: stalled})
    story = healthy(40, last).add(last, "0+60x10 stale", pod="autoscaler-0")
    alerts(programs, tmp_path, story, {10: set(), 15: stalled})


def test_a_standby_that_never_led_is_no_stall(programs: Programs, tmp_path: Path) -> None:
    story = healthy(20).add("paceline_autoscaler_last_success_timestamp_seconds", "0x20", pod="autoscaler-1")
    alerts(programs, tmp_path, story, {19: set()})


def test_an_autoscaler_is_blind_by_age_or_by_failed_questions(programs: Programs, tmp_path: Path) -> None:
    blind = "PacelineAutoscalerSignalsMissing"
    old = healthy(20).add("paceline_autoscaler_signal_age_seconds", "0+60x20", signal="attainment", **CHAT)
    alerts(programs, tmp_path, old, {3: set(), 12: {f"{blind}/attainment"}})
    answers = "paceline_autoscaler_query_results_total"
    failing = healthy(20).add(answers, "0+4x20", result="value").add(answers, "0+8x20", result="error")
    alerts(programs, tmp_path, failing, {15: {f"{blind}/prometheus"}})
    idle = healthy(20).add(answers, "0+1x20", result="value").add(answers, "0+12x20", result="empty")
    alerts(programs, tmp_path, idle, {15: set()})


def test_reconciles_that_fail_again_and_again_are_a_ticket(programs: Programs, tmp_path: Path) -> None:
    errors, labels = "paceline_operator_reconcile_errors_total", {"kind": "InferenceService", "reason": "Forbidden"}
    story = healthy(60).add(errors, "0+1x60", pod="operator-0", **labels)
    alerts(programs, tmp_path, story, {35: {"PacelineOperatorReconcileErrors"}})
    once = healthy(60).add(errors, "0x5 3x55", pod="operator-0", **labels)
    alerts(programs, tmp_path, once, {40: set()})


@pytest.mark.parametrize("leads", ["0x20", "_x20"])
def test_nobody_leads(programs: Programs, tmp_path: Path, leads: str) -> None:
    story = healthy(20, "paceline_operator_leader").add("paceline_operator_leader", leads, pod="operator-0")
    alerts(programs, tmp_path, story, {15: {"PacelineOperatorNoLeader"}})


def test_only_the_leaders_silence_counts(programs: Programs, tmp_path: Path) -> None:
    age = "paceline_operator_watch_age_seconds"
    story = healthy(30, "paceline_operator_leader")
    for name, leads in (("operator-0", 1), ("operator-1", 0)):
        story.add("paceline_operator_leader", f"{leads}x30", pod=name)
    story.add(age, "0+60x30", pod="operator-0", kind="Deployment").add(age, "5x30", pod="operator-0", kind="Tenant")
    story.add(age, "9000x30", pod="operator-1", kind="Tenant")
    case = {
        "eval_time": "20m",
        "alertname": "PacelineOperatorWatchStale",
        "exp_alerts": [
            {
                "exp_labels": {"severity": "ticket", "kind": "Deployment"},
                "exp_annotations": {
                    "summary": "The leading operator hears nothing about Deployment",
                    "description": "Its watch has been silent for 20m 0s, longer than the API server keeps one open.",
                    "runbook_url": "https://paceline.dev/docs/runbooks/PacelineOperatorWatchStale.md",
                },
            }
        ],
    }
    told(programs, tmp_path, story, [], [case])


def test_overflowing_tenants_are_said_once_they_stay(programs: Programs, tmp_path: Path) -> None:
    story = healthy(130).add("paceline_tenant_label_overflow_total", "0x10 0+2x120")
    alerts(programs, tmp_path, story, {60: set(), 90: {"PacelineTenantLabelOverflow"}})


def test_nothing_at_all_is_three_alerts_on_absence_and_the_watchdog_always_fires(
    programs: Programs, tmp_path: Path
) -> None:
    absent = {"PacelineGatewayDown", "PacelineAutoscalerStalled", "PacelineOperatorNoLeader"}
    alerts(programs, tmp_path, Story({"up": "1x20"}), {10: absent})
    watchdog = {
        "exp_labels": {"severity": "none"},
        "exp_annotations": {
            "summary": "Alerts arrive",
            "description": "Always firing: its absence at the receiver says that alerts do not get through.",
            "runbook_url": "https://paceline.dev/docs/runbooks/PacelineWatchdog.md",
        },
    }
    case = {"eval_time": "1m", "alertname": "PacelineWatchdog", "exp_alerts": [watchdog]}
    told(programs, tmp_path, healthy(5), [], [case])


@pytest.mark.parametrize(
    ("age", "expected"),
    [("0+60x60", {10: {"PacelineUsageNotStored"}}), ("0+1x60", {59: set()}), ("60 200 30x58", {59: set()})],
    ids=["grows", "as-it-should", "one-late-write"],
)
def test_use_that_is_not_stored(programs: Programs, tmp_path: Path, age: str, expected: Values) -> None:
    story = healthy(60).add("paceline_usage_checkpoint_age_seconds", age, pod="gateway-0")
    alerts(programs, tmp_path, story, expected)
