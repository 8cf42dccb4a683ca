"""The reader of the audit log, on lines as the API server writes them."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.harness.audit import AuditLog, Write, service_account


def line(user: str, verb: str, resource: str, code: int = 200) -> str:
    """One line of the log."""
    about = {"resource": resource, "namespace": "n", "name": "x", "apiVersion": "v1"}
    value: dict[str, Any] = {
        "kind": "Event",
        "stage": "ResponseComplete",
        "verb": verb,
        "user": {"username": user},
        "objectRef": about,
        "responseStatus": {"metadata": {}, "code": code},
    }
    return json.dumps(value) + "\n"


@pytest.fixture
def log(tmp_path: Path) -> AuditLog:
    """A log with three writes."""
    path = tmp_path / "audit.log"
    path.write_text(
        line("a", "create", "pods", 201) + line("b", "patch", "services") + line("a", "create", "pods", 409)
    )
    return AuditLog(path)


def test_writes_are_told_apart_by_user(log: AuditLog) -> None:
    assert log.writes(user="b") == [Write("b", "patch", "services", "", "n", "x", 200, "")]


def test_a_refused_write_counts_as_a_request_with_its_code(log: AuditLog) -> None:
    assert log.count(user="a") == {("create", "pods"): 2}
    assert [write.code for write in log.writes(user="a")] == [201, 409]


def test_only_what_follows_a_mark_is_read(log: AuditLog) -> None:
    mark = log.mark()
    assert log.writes(mark) == []
    with log.path.open("a") as file:
        file.write(line("c", "delete", "pods"))
    assert log.count(mark) == {("delete", "pods"): 1}


def test_a_line_that_is_still_being_written_is_not_read_yet(log: AuditLog) -> None:
    whole = len(log.writes())
    with log.path.open("a") as file:
        file.write(line("c", "delete", "pods")[:20])
    assert len(log.writes()) == whole


def test_a_log_that_is_not_there_yet_begins_at_its_first_byte(tmp_path: Path) -> None:
    assert AuditLog(tmp_path / "none").mark() == 0


def test_a_service_account_is_named_as_the_api_server_names_it() -> None:
    assert service_account("paceline-system", "operator") == "system:serviceaccount:paceline-system:operator"
