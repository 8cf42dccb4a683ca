from datetime import UTC, datetime
from typing import Any

import pytest

from paceline_cli.commands.kube.status import cells, header
from paceline_cli.ui.detail import detail, event_line, event_time, last
from paceline_cli.ui.rows import age, table

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def document(annotations: dict[str, str] | None = None, **status: Any) -> dict[str, Any]:
    return {
        "apiVersion": "paceline.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {
            "name": "chat",
            "namespace": "team",
            "creationTimestamp": "2026-01-31T11:15:00Z",
            "annotations": annotations or {},
        },
        "spec": {"model": {"source": "builtin://demo"}, "pools": [{"name": "main", "accelerator": "cpu"}]},
        "status": status,
    }


def busy() -> dict[str, Any]:
    ready = {"type": "Ready", "status": "True", "reason": "AllReady", "message": "2 of 2 replicas are ready."}
    return document(
        annotations={"paceline.dev/pause-until": "2026-01-31T14:00:00Z", "paceline.dev/pause-reason": "launch"},
        conditions=[{**ready, "lastTransitionTime": "2026-01-31T10:00:00Z"}],
        workload={
            "summary": "2/2",
            "model": "builtin://demo",
            "servedName": "chat",
            "revision": "abcdefghij",
            "endpoint": "http://gw/v1",
            "pools": [{"name": "main", "ready": 2}],
        },
        scaling={
            "desired": 2,
            "promise": "ttft p95 420/500ms",
            "burn": 0.4,
            "pools": [{"name": "main", "desired": 2}],
            "decision": "1 -> 2: demand needs 1.6 replicas.",
            "reason": "demand",
            "limit": "max",
            "time": "2026-01-31T11:59:00Z",
        },
        slo=[{"class": "interactive", "metric": "ttft", "quantile": "p95", "target": "500ms", "observed": "420ms"}],
        cost={"perHour": "7.50"},
    )


def test_the_table_has_the_columns_of_kubectl_get() -> None:
    assert header()[2:] == ("MODEL", "SERVED", "READY", "DESIRED", "SLO", "BURN", "REASON", "COST/H", "AGE")
    assert cells(busy(), NOW) == (
        "team", "chat", "builtin://demo", "chat", "2/2", "2", "ttft p95 420/500ms", "0.4", "demand", "7.50", "45m",
    )  # fmt: skip


def test_what_nobody_wrote_yet_is_empty() -> None:
    assert cells(document(), NOW)[3:10] == ("",) * 7


def test_a_table_is_as_wide_as_its_widest_cells() -> None:
    assert list(table(("A", "LONGER"), [("wide cell", "x"), ("", "y")])) == [
        "A           LONGER",
        "wide cell   x",
        "            y",
    ]


@pytest.mark.parametrize(
    ("since", "shown"),
    [
        ("2026-01-31T11:59:15Z", "45s"),
        ("2026-01-31T11:58:30Z", "90s"),
        ("2026-01-31T11:00:00Z", "60m"),
        ("2026-01-31T07:00:00Z", "5h"),
        ("2026-01-01T12:00:00Z", "30d"),
        ("2026-01-31T12:00:09Z", "0s"),
        (None, ""),
    ],
)
def test_an_age_is_short(since: str | None, shown: str) -> None:
    assert age(since, NOW) == shown


def test_the_details_tell_conditions_pools_and_promises() -> None:
    text = "\n".join(detail(busy(), NOW))
    assert text == (
        "team/chat  chat  builtin://demo\n"
        "  replicas  2/2 ready\n"
        "  revision  abcdefghij\n"
        "  endpoint  http://gw/v1\n"
        "  promise   ttft p95 420/500ms\n"
        "  decision  demand: 1 -> 2: demand needs 1.6 replicas. (2026-01-31T11:59:00Z)\n"
        "  cost      $7.50/h\n"
        "  paused    until 2026-01-31T14:00:00Z: launch\n"
        "\n"
        "CONDITION   STATUS   REASON     SINCE   MESSAGE\n"
        "Ready       True     AllReady   2h      2 of 2 replicas are ready.\n"
        "\n"
        "POOL   READY   STARTING   DRAINING   DESIRED\n"
        "main   2       0          0          2\n"
        "\n"
        "PROMISE                OBSERVED   PROMISED   BURN\n"
        "interactive ttft p95   420ms      500ms"
    )


def test_a_service_that_no_operator_has_seen_says_so() -> None:
    assert "is paceline's operator running" in list(detail(document(), NOW))[-1]


def test_the_last_decision_of_a_status_says_what_bound_it() -> None:
    (line,) = last(busy()["status"]["scaling"])
    assert line == "2026-01-31T11:59:00Z  demand: 1 -> 2: demand needs 1.6 replicas. (bound by max)"
    assert not list(last({}))


def test_an_event_tells_when_what_and_how_often() -> None:
    event = {
        "metadata": {},
        "reason": "Scaled",
        "message": "1 -> 2",
        "count": 3,
        "lastTimestamp": "2026-01-31T11:59:00Z",
    }
    assert event_line(event) == "2026-01-31T11:59:00Z  Scaled: 1 -> 2 (x3)"


def test_the_time_of_an_event_is_the_latest_that_its_writer_gave() -> None:
    metadata = {"creationTimestamp": "2026-01-31T01:00:00Z"}
    assert event_time({"metadata": metadata}) == "2026-01-31T01:00:00Z"
    assert event_time({"metadata": metadata, "eventTime": "2026-01-31T02:00:00Z"}) == "2026-01-31T02:00:00Z"
    series = {"count": 2, "lastObservedTime": "2026-01-31T03:00:00Z"}
    assert event_time({"metadata": metadata, "eventTime": "x", "series": series}) == "2026-01-31T03:00:00Z"
