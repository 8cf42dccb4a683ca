"""`paceline simulate` as a program: what it refuses, what it writes, and what an interrupt leaves."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.cli.waiting import wait_until
from tests.every import cases
from typer.testing import CliRunner

from paceline_cli.simulate.command import app
from paceline_core.errors import InvalidInput

SERVICE = """
apiVersion: paceline.dev/v1alpha1
kind: InferenceService
metadata: {name: NAME}
spec:
  model: {source: "builtin://demo"}
  engine: {maxModelLen: 8192, emulate: {accelerator: h100, model: llama-3.1-8b, coldStart: 5s}}
  classes: {interactive: {slo: {ttft: {p95: 1s}, tpot: {p95: 100ms}}}}
  pools: [{name: main, accelerator: cpu, replicas: {min: 1, max: 3}}]
"""
TRACE = "t_s,prompt_tokens,output_tokens\n" + "".join(f"{0.5 * number},1000,20\n" for number in range(80))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A service, two services, one on a bare CPU, a trace and a damaged one."""
    made = tmp_path_factory.mktemp("study")
    one, two = SERVICE.replace("NAME", "chat"), SERVICE.replace("NAME", "code")
    (made / "one.yaml").write_text(one)
    (made / "two.yaml").write_text(f"{one}---{two}")
    (made / "cpu.yaml").write_text(
        one.replace(", emulate: {accelerator: h100, model: llama-3.1-8b, coldStart: 5s}", "")
    )
    (made / "bad.yaml").write_text(one.replace("maxModelLen", "maxModelLenn"))
    (made / "trace.csv").write_text(TRACE)
    (made / "damaged.csv").write_text(TRACE + "soon,1000,20\n")
    return made


def arguments(folder: Path, file: str, trace: str, *more: str) -> list[str]:
    return ["-f", str(folder / file), "--trace", str(folder / trace), *more]


@cases(
    ("file", "trace", "more", "message"),
    [
        ("one.yaml", "damaged.csv", (), "damaged.csv:82: t_s is 'soon', not a number of seconds"),
        ("one.yaml", "gone.csv", (), "gone.csv: cannot be read as a trace (No such file or directory); pass"),
        ("one.yaml", "/dev/zero", (), "/dev/zero: is not a file"),
        ("one.yaml", "trace.csv", ("--warmup", "30s"), "--warmup: is 30s, but at most 10 s is a quarter"),
        ("one.yaml", "trace.csv", ("--policy", "hpa"), "is 'hpa'; use hpa-queue or hpa-kv or hpa-concurrency"),
        ("one.yaml", "trace.csv", ("--policy", "slow"), "policy: is 'slow'; use slo"),
        ("one.yaml", "trace.csv", ("--policy", "static:4"), "--policy: static:4: spec.pools[0].replicas allows 1 to 3"),
        ("one.yaml", "trace.csv", ("--policy", ","), "--policy: names no policy"),
        ("one.yaml", "trace.csv", ("--lead", "soon"), "--lead: 'soon' is not a duration"),
        ("one.yaml", "trace.csv", ("--crowd", "5s"), "--crowd: "),
        ("one.yaml", "trace.csv", ("--from", "1h"), "trace: has no request from 3600 s"),
        ("one.yaml", "trace.csv", ("--class", "batch"), "spec.classes.batch.slo: promises nothing"),
        ("one.yaml", "trace.csv", ("--service", "code"), "--service: name one of the services of"),
        ("two.yaml", "trace.csv", (), "--service: name one of the services of"),
        ("one.yaml", "trace.csv", ("--out", "/nowhere/x.jsonl"), "--out: /nowhere/x.jsonl cannot be written"),
        ("cpu.yaml", "trace.csv", (), "document 1 (InferenceService chat): spec.pools[0].accelerator: workers on cpu"),
        ("bad.yaml", "trace.csv", (), "maxModelLenn"),
    ],
)
def test_wrong_input_is_named_by_line_field_or_option(
    file: str, trace: str, more: Sequence[str], message: str, folder: Path
) -> None:
    result = CliRunner().invoke(app, arguments(folder, file, trace, *more))
    assert isinstance(result.exception, InvalidInput)
    assert message in str(result.exception)


@pytest.mark.parametrize(
    ("option", "name"), [("--report", "trace.csv"), ("--report", "one.yaml"), ("--out", "trace.csv")]
)
def test_an_input_is_not_written_over(option: str, name: str, folder: Path) -> None:
    before = (folder / name).read_text()
    result = CliRunner().invoke(app, arguments(folder, "one.yaml", "trace.csv", option, str(folder / name)))
    assert f"{option}: {folder / name} is the file of --" in str(result.exception)
    assert (folder / name).read_text() == before


def test_two_outputs_are_two_files(folder: Path, tmp_path: Path) -> None:
    same = str(tmp_path / "x")
    given = arguments(folder, "one.yaml", "trace.csv", "--out", same, "--report", same)
    result = CliRunner().invoke(app, given)
    assert "--report: " in str(result.exception)
    assert not (tmp_path / "x").exists()


@pytest.mark.real
def test_a_study_has_a_table_rows_and_a_page_and_is_not_run_twice(folder: Path, tmp_path: Path) -> None:
    out, report = tmp_path / "rows.jsonl", tmp_path / "page.html"
    given = arguments(folder, "two.yaml", "trace.csv", "--service", "chat", "--policy", "slo,static:1", "--seeds", "1")
    given += ["--out", str(out), "--report", str(report)]
    first = CliRunner().invoke(app, given)
    assert first.exit_code == 0, first.output
    assert "promise of default/chat: 95% TTFT ≤ 1s, 95% TPOT ≤ 100ms" in first.output
    assert "static:1 seed 0: 100.00% in time" in first.output
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert {(row["policy"], row["seed"], row["attainment"]) for row in rows} == {("slo", 0, 1.0), ("static:1", 0, 1.0)}
    assert report.read_text().startswith("<!doctype html>")
    again = CliRunner().invoke(app, [*given, "--json"])
    assert "2 runs of 2 found in" in again.output
    assert len(out.read_text().splitlines()) == 2
    found = json.loads(again.stdout)
    assert [policy["holds"] for policy in found["policies"]] == [True, True]


def group_is_gone(leader: int) -> bool:
    try:
        os.killpg(leader, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.real
@pytest.mark.parametrize(("interrupt", "number"), [(os.killpg, signal.SIGINT), (os.kill, signal.SIGTERM)])
def test_an_interrupt_keeps_what_is_done(
    interrupt: Callable[[int, int], None], number: int, folder: Path, tmp_path: Path
) -> None:
    out, report = tmp_path / "rows.jsonl", tmp_path / "page.html"
    given = arguments(folder, "one.yaml", "trace.csv", "--policy", "slo", "--seeds", "2000")
    command = (sys.executable, "-m", "paceline_cli", "simulate", *given, "--out", str(out), "--report", str(report))
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as study:
        try:
            wait_until(lambda: out.exists() and "\n" in out.read_text(), 90.0)
            interrupt(study.pid, number)
            shown, told = study.communicate(timeout=60)
        finally:
            study.kill()
    assert study.returncode == 130
    assert "Traceback" not in told
    count = len(out.read_text().splitlines())
    assert told.splitlines()[-1].startswith(f"interrupted; this is of {count} run")
    assert "slo" in shown
    assert report.read_text().startswith("<!doctype html>")
    wait_until(lambda: group_is_gone(study.pid))
