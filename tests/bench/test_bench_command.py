"""`paceline bench` as a program."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.every import cases
from typer.testing import CliRunner

from paceline_cli.bench.attach import attach, choose
from paceline_cli.bench.command import app
from paceline_core.clock import SystemClock
from paceline_core.errors import InvalidInput, NotFound, PacelineError, Unreachable
from paceline_core.objects import InferenceService, ResolvedService, resolve, validate


def service(name: str, model: str) -> ResolvedService:
    document = {
        "apiVersion": "paceline.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "model": {"source": "builtin://demo", "servedName": model},
            "pools": [{"name": "main", "accelerator": "cpu"}],
        },
    }
    found = validate(document)
    assert isinstance(found, InferenceService)
    return resolve(found)


CHAT, CODE = service("chat", "demo"), service("code", "coder")


def failed(arguments: Sequence[str]) -> BaseException:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exception is not None
    return result.exception


@cases(
    ("arguments", "field"),
    [
        (["--url", "http://127.0.0.1:1"], "url: needs --key and --model"),
        (["--url", "http://127.0.0.1:1", "-f", "x.yaml"], "url: goes without --file"),
        (["--url", "localhost", "--key", "k", "--model", "m"], "url: 'localhost'"),
        (["--target", "ttft=1"], "target: "),
        (["--limit", "soon"], "limit: "),
        (["--profile", "burst", "--duration", "30s"], "duration: "),
        (["--rate", "0"], "rate: "),
        (["--trace", "x.csv", "--profile", "burst"], "--trace: has arrivals and lengths of its own; leave --profile"),
        (["--trace", "x.csv", "--prompt-tokens", "9"], "--trace: has arrivals and lengths of its own"),
        (["--times", "2"], "--trace: is missing"),
        (["--trace", "/nowhere/x.csv"], "/nowhere/x.csv: cannot be read as a trace"),
        (["--out", "/nowhere/report.json"], "out: /nowhere/report.json cannot be written"),
    ],
)
def test_a_wrong_option_is_named(arguments: list[str], field: str) -> None:
    error = failed(arguments)
    assert isinstance(error, InvalidInput)
    assert str(error).startswith(field)


def test_an_endpoint_that_does_not_answer_ends_the_run() -> None:
    error = failed(["--url", "http://127.0.0.1:1", "--key", "k", "--model", "m"])
    assert isinstance(error, Unreachable)
    assert "unreachable" in str(error)


def test_without_a_running_stack_the_user_is_told_what_to_do(tmp_path: Path) -> None:
    error = failed(["--state", str(tmp_path)])
    assert isinstance(error, NotFound)
    assert "paceline up" in str(error)


async def test_a_stale_record_of_a_run_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    record = {"pid": 1, "socket": str(tmp_path / "gone.sock"), "endpoint": "http://127.0.0.1:1"}
    (tmp_path / "run" / "run.json").write_text(json.dumps(record))
    with pytest.raises(PacelineError, match="did not list"):
        await attach(tmp_path, None, SystemClock(), limit_s=0.2)


@pytest.mark.parametrize(
    ("model", "chosen"), [("demo", CHAT), ("coder", CODE), ("default/chat", CHAT), ("default/code", CODE)]
)
def test_a_service_is_found_by_the_model_or_by_its_key(model: str, chosen: ResolvedService) -> None:
    assert choose([CHAT, CODE], model) is chosen


def test_the_only_service_needs_no_name() -> None:
    assert choose([CHAT], None) is CHAT


@pytest.mark.parametrize("model", [None, "other"])
def test_an_unclear_model_is_refused_with_the_choices(model: str | None) -> None:
    with pytest.raises(InvalidInput, match="demo, coder"):
        choose([CHAT, CODE], model)
