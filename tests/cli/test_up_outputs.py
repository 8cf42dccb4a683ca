import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from paceline_cli.ui.detail import detail
from paceline_cli.ui.rows import legend, line, row
from paceline_cli.ui.up_outputs import JsonUpOutput, PlainUpOutput, changed, curl, screen, up_output
from paceline_cli.up.check import ChatAnswer, ChatTarget

LOGS = Path("/state/run/logs")
TARGET = ChatTarget("http://127.0.0.1:8000", "pl_abc_def", "demo")
ANSWER = ChatAnswer(ttft_s=0.12, total_s=0.62, tokens=11, text=" Time to first token. ")


def document(**status: Any) -> dict[str, Any]:
    return {
        "apiVersion": "paceline.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": "chat", "namespace": "default"},
        "spec": {
            "model": {"source": "builtin://demo", "servedName": "demo"},
            "pools": [{"name": "main", "accelerator": "cpu"}],
        },
        "status": status,
    }


def busy(observed: str = "620ms", burn: float = 3.2) -> dict[str, Any]:
    return document(
        workload={
            "summary": "1/3 emulated",
            "emulated": True,
            "pools": [{"name": "main", "ready": 1, "starting": 2, "draining": 1}],
        },
        scaling={"desired": 3, "decision": "1 -> 3: demand needs 2.4 replicas.", "reason": "demand"},
        slo=[
            {"class": "interactive", "metric": "ttft", "quantile": "p95", "target": "500ms", "observed": observed,
             "burn": burn},
            {"class": "interactive", "metric": "tpot", "quantile": "p95", "target": "100ms"},
        ],
        cost={"perHour": "7.50"},
    )  # fmt: skip


def run(*documents: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "endpoint": "http://127.0.0.1:8000",
        "uptime_s": 80.0,
        "source": "embedded",
        "parts": {"gateway": "running", "autoscaler": "running"},
        "services": list(documents),
        "events": [],
        **fields,
    }


def test_a_row_holds_what_a_screen_has_room_for() -> None:
    found = row(busy())
    assert found.replicas == "1/3 ready, 2 starting, 1 draining"
    assert (found.model, found.emulated, found.cost) == ("demo", True, "7.50")
    assert [(promise.name, promise.broken) for promise in found.promises] == [
        ("interactive ttft p95", True),
        ("interactive tpot p95", False),
    ]


def test_a_service_without_a_status_is_shown_as_it_is() -> None:
    assert row(document()).replicas == "0/0 ready"


def test_conditions_that_ask_for_attention_are_troubles() -> None:
    stale = {"type": "MetricsFresh", "status": "False", "reason": "Stale", "message": "No metrics for 40 s."}
    fine = {"type": "Ready", "status": "True", "reason": "X", "message": "1 worker."}
    dated = [{**c, "lastTransitionTime": "2026-01-01T00:00:00Z"} for c in (stale, fine)]
    assert row(document(conditions=dated)).problems == ("No metrics for 40 s.",)


def test_a_line_says_replicas_promise_and_decision() -> None:
    assert line(row(busy())) == (
        "default/chat  1/3 ready, 2 starting, 1 draining  emulated  interactive ttft p95 620ms of 500ms, burn rate "
        "3.2  interactive tpot p95 no data of 100ms  demand: 1 -> 3: demand needs 2.4 replicas."
    )


def test_a_burn_rate_is_explained_wherever_one_is_shown_and_nowhere_else() -> None:
    now = datetime(2026, 1, 31, 12, tzinfo=UTC)
    told = legend([row(document()), row(busy())])
    assert told.startswith(
        "burn rate: share of the last minute's requests that missed a promise, over the share that may"
    )
    assert told in list(detail(busy(), now))
    assert legend([row(document())]) == ""
    assert not any("burn rate:" in text for text in detail(document(), now))


def test_a_line_is_written_once_until_something_changes() -> None:
    seen: dict[str, tuple[object, ...]] = {}
    assert len(changed([row(busy())], seen)) == 1
    assert changed([row(busy(observed="640ms"))], seen) == []
    assert len(changed([row(busy(burn=0.5))], seen)) == 1


def test_the_screen_shows_replicas_promises_decision_and_what_is_down() -> None:
    console = Console(file=io.StringIO(), width=100)
    event = {"time": "2026-01-01T12:00:01Z", "reason": "BackOff", "message": "chat-main-1 ended (-9)"}
    parts = {"gateway": "down", "autoscaler": "running", "prometheus": "starting"}
    console.print(screen([row(busy())], run(parts=parts, events=[event])))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    for part in (
        "down: gateway",
        "starting: prometheus",
        "up 1m20s",
        "1/3 ready",
        "620ms",
        "500ms",
        "3.2",
        "demand:",
        "$7.50/h",
        "12:00:01",
    ):
        assert part in text


def test_plain_output_tells_the_whole_story() -> None:
    lines: list[str] = []
    plain = PlainUpOutput(lines.append)
    plain.starting(run(busy()), ["careful"])
    plain.ready(TARGET)
    for _ in range(3):
        plain.update(run(busy()))
    plain.checked(TARGET, ANSWER)
    plain.stopping()
    plain.stopped(LOGS)
    text = "\n".join(lines)
    assert "note: careful" in text
    assert "embedded source, since there is no prometheus on PATH" in text
    assert curl(TARGET) in text
    assert text.count("1/3 ready") == 1
    assert "check   demo: ttft 120 ms, 11 tokens, 20.0 tokens/s" in text
    assert lines[-1] == "stopped; its logs stay in /state/run/logs until the next start"


def test_plain_output_says_once_that_a_process_ended() -> None:
    lines: list[str] = []
    plain = PlainUpOutput(lines.append)
    ended = {"time": "2026-01-01T12:00:01Z", "reason": "BackOff", "message": "gateway ended (signal 9)"}
    scaled = {"time": "2026-01-01T12:00:02Z", "reason": "Scaled", "message": "1 -> 2"}
    for events in ([], [ended], [ended, scaled], [ended, scaled, {**ended, "time": "2026-01-01T12:00:09Z"}]):
        plain.update(run(events=events))
    assert lines == ["gateway ended (signal 9)"] * 2


def test_json_output_is_one_object_a_line() -> None:
    lines: list[str] = []
    out = JsonUpOutput(lines.append)
    out.starting(run(busy()), [])
    out.ready(TARGET)
    out.update(run(busy()))
    out.update(run(busy(), uptime_s=81.0))
    out.checked(TARGET, ANSWER)
    out.stopped(LOGS)
    events = [json.loads(text) for text in lines]
    assert [event["event"] for event in events] == ["starting", "ready", "status", "checked", "stopped"]
    assert events[1] == {"event": "ready", "endpoint": "http://127.0.0.1:8000/v1", "key": TARGET.key, "model": "demo"}
    assert events[4]["logs"] == "/state/run/logs"
    assert (events[3]["model"], events[3]["tokens_per_s"]) == ("demo", 20.0)


def test_the_curl_is_ready_to_paste() -> None:
    text = curl(TARGET)
    assert "http://127.0.0.1:8000/v1/chat/completions" in text
    assert "Bearer pl_abc_def" in text
    body = text.partition("-d '")[2].rstrip("'")
    assert json.loads(body)["model"] == "demo"
    assert json.loads(body)["temperature"] == 0


def test_output_without_a_terminal_is_plain() -> None:
    assert isinstance(up_output(as_json=False, terminal=False), PlainUpOutput)
    assert isinstance(up_output(as_json=True, terminal=True), JsonUpOutput)
