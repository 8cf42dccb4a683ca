"""`paceline usage`: its rows, and that a gateway that is stopped, killed and started again forgets nothing."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.stackproc import Api, Up, alive, said, up
from tests.cli.waiting import wait_until

from paceline_cli.commands.local.tenants import COLUMNS, Form, as_csv, exported, usage_rows
from paceline_core.clock import SystemClock
from paceline_core.errors import InvalidInput, NotFound
from paceline_gateway.usage.types import month_of


def entry(name: str, requests: int, dollars: str, time: str = "2026-11-22T10:00:00Z") -> dict[str, Any]:
    counts = {"requests": requests, "inputTokens": 10 * requests, "outputTokens": 20 * requests}
    return {"id": name, **counts, "dollars": dollars, "time": time}


def tenant(name: str, *entries: dict[str, Any], month: str = "2026-11") -> dict[str, Any]:
    status = {"usage": {"month": month, "gateways": list(entries)}}
    return {"metadata": {"name": name, "namespace": "paceline-system"}, "status": status}


TENANTS = [
    tenant(
        "red",
        entry("g0", 1, "0.1"),
        entry("settled", 4, "0.000002", "2026-11-23T10:00:00Z"),
        entry("g0@2026-10", 7, "3"),
    ),
    tenant("blue", entry("g1", 5, "9"), month="2026-10"),
    {"metadata": {"name": "new", "namespace": "paceline-system"}},
]


def test_a_row_is_the_sum_over_all_gateways() -> None:
    rows = {row["tenant"]: row for row in usage_rows(TENANTS, "2026-11")}
    assert list(rows) == ["blue", "new", "red"]
    assert rows["red"] == {
        "month": "2026-11", "tenant": "red", "requests": 5, "input_tokens": 50, "output_tokens": 100,
        "dollars": "0.100002", "written": "2026-11-23T10:00:00Z",
    }  # fmt: skip
    assert rows["blue"]["requests"] == rows["new"]["requests"] == 0


def test_the_last_month_is_found_wherever_it_stands() -> None:
    rows = {row["tenant"]: row for row in usage_rows(TENANTS, "2026-10")}
    assert (rows["red"]["requests"], rows["red"]["dollars"]) == (7, "3.000000")
    assert (rows["blue"]["requests"], rows["blue"]["dollars"]) == (5, "9.000000")


def test_both_forms_have_the_same_columns() -> None:
    rows = usage_rows(TENANTS, "2026-11")
    assert as_csv(rows).splitlines()[0] == "month,tenant,requests,input_tokens,output_tokens,dollars,written"
    assert list(csv.DictReader(io.StringIO(as_csv(rows)))) == [
        {column: str(row[column]) for column in COLUMNS} for row in rows
    ]
    assert json.loads(exported(TENANTS, "2026-11", Form.JSON, "")) == rows


def test_one_tenant_alone_or_one_that_is_not_there() -> None:
    assert [row["tenant"] for row in json.loads(exported(TENANTS, "2026-11", Form.JSON, "red"))] == ["red"]
    with pytest.raises(NotFound, match="there is no Tenant rde; did you mean red"):
        exported(TENANTS, "2026-11", Form.CSV, "rde")
    with pytest.raises(InvalidInput):
        exported(TENANTS, "2026-11", Form.CSV, "Red!")


def test_a_month_that_nobody_kept_is_not_told_as_one_without_use() -> None:
    with pytest.raises(NotFound, match="nothing is kept of 2019-01; only this month and the last are kept, 20"):
        exported(TENANTS, "2019-01", Form.CSV, "")
    this = month_of(SystemClock().utc())
    assert [row["requests"] for row in json.loads(exported(TENANTS[2:], this, Form.JSON, ""))] == [0]


def test_a_month_that_is_none_is_refused() -> None:
    answer = said("usage", "--month", "2026-13", "--state", "nowhere")
    assert answer.returncode == 2
    assert "write a month like 2026-01" in answer.stderr


def export(run: Up) -> dict[str, Any]:
    """The one tenant's row."""
    answer = said("usage", "--format", "json", "--state", str(run.state))
    assert answer.returncode == 0, answer.stderr
    (row,) = json.loads(answer.stdout)
    return dict(row)


def chats(api: Api, count: int) -> tuple[int, int]:
    """Ask so often; input and output tokens of the answers together."""
    answers = [api.chat() for _ in range(count)]
    assert [answer.status_code for answer in answers] == [200] * count
    usages = [answer.json()["usage"] for answer in answers]
    return sum(u["prompt_tokens"] for u in usages), sum(u["completion_tokens"] for u in usages)


def end(run: Up, *, kill: bool) -> None:
    """Return when the gateway is gone."""
    before = run.part("paceline_gateway.main")
    assert before is not None
    (before.kill if kill else before.terminate)()
    wait_until(lambda: not alive([before]))


def restart(run: Up, api: Api, *, kill: bool) -> None:
    """End the gateway; the supervisor starts it again."""
    end(run, kill=kill)
    wait_until(lambda: run.part("paceline_gateway.main") is not None)
    wait_until(api.answers)
    wait_until(lambda: api.chat().status_code == 200)


@pytest.mark.real
def test_a_gateway_that_is_stopped_forgets_nothing_and_one_that_is_killed_only_what_it_had_not_written(
    tmp_path: Path,
) -> None:
    with up(tmp_path) as run:
        api = run.ready()
        wait_until(api.answers)
        tokens_in, tokens_out = chats(api, 3)
        restart(run, api, kill=False)
        first = export(run)
        assert (first["requests"], first["input_tokens"], first["output_tokens"]) == (3, tokens_in, tokens_out)
        assert float(first["dollars"]) > 0
        chats(api, 2)
        restart(run, api, kill=True)
        kept = export(run)["requests"]
        assert 3 <= kept <= 6
        end(run, kill=False)
        assert export(run)["requests"] == kept + 1
