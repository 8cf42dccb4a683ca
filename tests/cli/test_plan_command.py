"""`paceline plan` and `paceline quote` as programs: what they say, what they write, and what they refuse."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cli.test_simulate_command import SERVICE
from tests.every import cases
from typer.testing import CliRunner, Result

from paceline_cli.commands.lint import examine
from paceline_cli.plan.command import app
from paceline_cli.plan.quote import app as quote_app
from paceline_core.errors import InvalidInput

ROOT = Path(__file__).parents[2]
LOAD = ("--rps", "20", "--prompt", "1000", "--output", "200")
CHAT = ("--slo", "ttft:p95=500ms,tpot:p95=50ms", *LOAD)
CONFIG = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, a service that emulates, one on an unknown accelerator, one without a promise, and an empty folder."""
    made = tmp_path_factory.mktemp("plans")
    (made / "llama").mkdir()
    (made / "llama" / "config.json").write_text(json.dumps(CONFIG))
    (made / "empty").mkdir()
    chat = SERVICE.replace("NAME", "chat")
    (made / "chat.yaml").write_text(chat)
    bare = chat.replace(", emulate: {accelerator: h100, model: llama-3.1-8b, coldStart: 5s}", "")
    (made / "unknown.yaml").write_text(bare.replace("accelerator: cpu", "accelerator: h1000"))
    (made / "unemulated.yaml").write_text(chat.replace("model: llama-3.1-8b", "model: llama-9-9b"))
    (made / "untyped").mkdir()
    (made / "untyped" / "config.json").write_text(json.dumps({**CONFIG, "model_type": None}))
    own = SERVICE.replace("NAME", "chat").replace("builtin://demo", f"file://{made}/llama")
    own = own.replace(", emulate: {accelerator: h100, model: llama-3.1-8b, coldStart: 5s}", "")
    own = own.replace("accelerator: cpu", "accelerator: l4")
    (made / "own.yaml").write_text(own)
    service = yaml.safe_load(own)
    (pool,) = service["spec"]["pools"]
    pools = {**service["spec"], "pools": [pool, {**pool, "name": "other"}]}
    (made / "pools.yaml").write_text(yaml.safe_dump({**service, "spec": pools}))
    classes = {**service["spec"]["classes"], "batch": {"slo": {"ttft": {"p95": "9s"}}}}
    spec = {**service["spec"], "classes": classes}
    (made / "classes.yaml").write_text(yaml.safe_dump({**service, "spec": spec}))
    (made / "unpromised.yaml").write_text(chat.replace("slo: {ttft: {p95: 1s}, tpot: {p95: 100ms}}", ""))
    return made


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def document(*arguments: str) -> dict[str, Any]:
    result = run(*arguments, "-o", "json")
    assert not isinstance(result.exception, InvalidInput), result.exception
    return dict(json.loads(result.stdout))


def test_a_plan_says_at_once_how_many_replicas_of_what_at_which_cost(folder: Path) -> None:
    lines = run("--model", str(folder / "llama"), *CHAT, "--accelerator", "h100,l4").stdout.splitlines()
    assert lines[0] == "llama: 8.0B parameters, 16.1 GB of weights (bf16), 128 KiB of KV cache a token"
    assert lines[1] == (
        "20 requests/s of 1,000 prompt and 200 output tokens (cv 1), promised ttft p95 500ms, tpot p95 50ms"
    )
    assert lines[3] == "1 replica of 1 h100, $3.93 an hour"
    assert lines[4].startswith("  goodput 22 requests/s: 9")
    header, first, *_ = lines[7:]
    assert header.split() == [
        "REPLICAS",
        "OF",
        "TTFT",
        "p95",
        "TPOT",
        "p95",
        "GOODPUT",
        "LIMIT",
        "$/HOUR",
        "$/1M",
        "TOKENS",
        "TOKENS/S/W",
    ]
    assert first.split()[:3] == ["1", "1", "h100"]
    assert any(line.startswith("h100") and "costs least" in line for line in lines)


def test_json_has_the_plan_its_alternatives_and_every_decision(folder: Path) -> None:
    found = document("--model", "llama-3.3-70b", *CHAT, "--accelerator", "h100,l4")
    chosen = found["chosen"]
    assert (chosen["accelerator"], chosen["split"]["tensor"], chosen["replicas"]) == ("h100", 4, 3)
    assert chosen["goodput"] >= 20
    assert chosen["dollars_per_hour"] == pytest.approx(47.16)
    assert found["load"]["promise"]["ttft_s"] == 0.5
    assert [row["question"] for row in found["decisions"]][-1] == "costs least"
    assert {row["accelerator"] for row in found["decisions"]} == {"h100", "l4"}


def test_a_plan_of_ttft_alone_says_how_long_a_token_takes() -> None:
    load = ("--rps", "20", "--prompt", "6000", "--output", "200", "--accelerator", "h100")
    arguments = ("--model", "llama-3.1-8b", "--slo", "ttft=5s", *load)
    assert run(*arguments).exit_code == 0
    assert 0 < document(*arguments)["chosen"]["tpot_s"] < 1


def test_every_quantile_of_a_promise_is_planned_and_kept_in_the_manifest() -> None:
    def planned(slo: str, *more: str) -> Result:
        return run("--model", "llama-3.1-8b", "--slo", slo, *LOAD, "--accelerator", "h100", *more)

    assert "nothing keeps this promise" in planned("ttft:p95=10ms,ttft:p99=100s").stdout
    shown = planned("ttft:p50=200ms,ttft:p99=2s,tpot:p50=30ms,tpot:p99=50ms")
    assert "ttft p99 2s, tpot p50 30ms, ttft p50 200ms, tpot p99 50ms" in shown.stdout
    made = yaml.safe_load(planned("ttft:p50=200ms,ttft:p99=2s", "-o", "manifest").stdout)
    assert made["spec"]["classes"]["interactive"]["slo"] == {"ttft": {"p99": "2s", "p50": "200ms"}}


def test_a_quote_beyond_p99_notes_that_no_manifest_promises_it() -> None:
    arguments = ["--model", "llama-3.1-8b", "--slo", "ttft=5s,tpot=100ms", *LOAD, "--accelerator", "h100"]
    *_, p99, last = CliRunner().invoke(quote_app, arguments).stdout.splitlines()
    assert last.endswith("a manifest promises p99 at most")
    assert "manifest" not in p99


def test_a_quote_refuses_several_quantiles_of_a_metric() -> None:
    arguments = ["--model", "llama-3.1-8b", "--slo", "ttft:p50=1s,ttft:p99=2s", *LOAD]
    assert "one limit of ttft" in str(CliRunner().invoke(quote_app, arguments).exception)


def test_a_rate_that_too_many_replicas_would_take_says_so() -> None:
    slo = ("--slo", "ttft=1s,tpot=50ms", "--prompt", "1000", "--output", "200", "--accelerator", "h100")
    shown = run("--model", "llama-3.1-8b", *slo, "--rps", "10000000").stdout
    assert "nothing carries the rate" in shown
    assert "10,000,000 requests/s" in shown
    assert "needs more than 4,096 replicas" in shown


def test_the_manifest_of_a_file_is_its_own_service_with_what_was_planned(folder: Path) -> None:
    arguments = ("-f", str(folder / "own.yaml"), *LOAD, "--accelerator", "H100", "-o", "manifest")
    made, own = yaml.safe_load(run(*arguments).stdout), yaml.safe_load((folder / "own.yaml").read_text())
    (pool,), (before,) = made["spec"].pop("pools"), own["spec"].pop("pools")
    assert made["spec"]["engine"].pop("stepTokens", 2048) <= 2048
    assert made == own
    assert (pool["name"], pool["accelerator"], pool["replicas"]["min"]) == (before["name"], "h100", 1)


def test_a_manifest_notes_that_workers_compute_no_mixture_of_experts() -> None:
    result = run("--model", "mixtral-8x7b", *CHAT, "--accelerator", "h200", "-o", "manifest")
    assert "note: not served by this version: spec.model.source: workers compute no mixture" in result.stderr


@cases("more", [(), ("--quantization", "int4", "--kv-dtype", "fp8"), ("--accelerator", "h100,b200")])
def test_the_manifest_of_a_plan_is_valid(more: Sequence[str], folder: Path) -> None:
    result = run("--model", str(folder / "llama"), *CHAT, *more, "-o", "manifest")
    (folder / "made.yaml").write_text(result.stdout)
    (found,) = examine([folder / "made.yaml"]).values()
    assert [fault for fault in found.faults if not fault.startswith("not served by this version")] == []
    made = yaml.safe_load(result.stdout)
    assert made["spec"]["classes"]["interactive"]["slo"] == {"ttft": {"p95": "500ms"}, "tpot": {"p95": "50ms"}}
    assert made["spec"]["pools"][0]["replicas"]["min"] >= 1


def test_what_workers_do_not_serve_yet_is_noted_beside_the_manifest(folder: Path) -> None:
    result = run("--model", "llama-3.3-70b", *CHAT, "--accelerator", "mi300x", "-o", "manifest")
    assert (
        "note: not served by this version: spec.pools[0].accelerator: workers compute on NVIDIA GPUs" in result.stderr
    )
    split = run("--model", "llama-3.3-70b", *CHAT, "--accelerator", "h100", "-o", "manifest")
    assert "note: not served by this version: spec.pools[0].gpusPerReplica" in split.stderr
    assert yaml.safe_load(split.stdout)["spec"]["engine"]["parallel"] == {"tensor": 4}


def test_a_service_is_planned_with_its_own_promise_engine_and_emulated_accelerator(folder: Path) -> None:
    found = document("-f", str(folder / "chat.yaml"), *LOAD)
    assert {row["accelerator"] for row in found["decisions"]} == {"h100"}
    assert (found["load"]["promise"]["ttft_s"], found["load"]["promise"]["tpot_s"]) == (1.0, 0.1)
    assert (
        document("-f", str(folder / "chat.yaml"), *LOAD, "--slo", "ttft:p99=2s")["load"]["promise"]["ttft_quantile"]
        == 0.99
    )


def test_the_page_shows_what_the_command_prints() -> None:
    page = (ROOT / "docs" / "planner.md").read_text()
    command, shown = (block.strip() for block in page.split("```")[1:4:2])
    assert shown == run(*command.removeprefix("paceline plan ").split()).stdout.strip()


@cases("file", ["examples/burst.yaml", "examples/chat.yaml", "examples/simulate/service.yaml"])
def test_every_example_can_be_planned(file: str) -> None:
    result = run("-f", str(ROOT / file), "--rps", "1", "--prompt", "500", "--output", "100")
    assert result.exit_code == 0, result.output
    assert "$/1M TOKENS" in result.stdout


def test_a_promise_that_nothing_keeps_fails_and_names_the_nearest(folder: Path) -> None:
    result = run("--model", "llama-3.1-405b", "--slo", "ttft:p95=300ms,tpot:p95=10ms", *LOAD, "--accelerator", "h200")
    assert result.exit_code == 1
    assert "nothing keeps this promise" in result.stdout
    assert re.search(r"the nearest one: \d+ replicas of 8 h200 \(tensor 8\) would keep ttft p95 ", result.stdout)


def test_replicas_that_are_mostly_idle_come_with_a_promise_that_takes_fewer() -> None:
    found = document(
        "--model", "llama-3.1-405b", "--slo", "ttft:p95=500ms,tpot:p95=50ms", *LOAD, "--accelerator", "h200"
    )
    assert found["chosen"]["usable_share"] < 0.1
    assert found["nearest"]["replicas"] < found["chosen"]["replicas"] / 5
    assert found["nearest"]["promise"]["ttft_s"] > 0.5


def test_a_model_that_fits_nowhere_says_what_is_missing(folder: Path) -> None:
    result = run("--model", "llama-3.1-405b", *CHAT, "--accelerator", "l4")
    assert result.exit_code == 1
    assert "nothing fits" in result.stdout
    assert "leave no room for a KV cache; use more devices, a larger one, or fewer bytes per weight" in result.stdout


def test_fewer_bytes_fit_a_smaller_device() -> None:
    big = document("--model", "llama-3.3-70b", *CHAT, "--accelerator", "rtx-pro-6000", "--devices", "1")
    small = document(
        "--model", "llama-3.3-70b", *CHAT, "--accelerator", "rtx-pro-6000", "--devices", "1", "--quantization", "int4"
    )
    assert not big["decisions"][0]["passed"]
    assert small["decisions"][0]["passed"]


@cases(
    ("arguments", "message"),
    [
        ((), "--file: one of --file and --model is needed"),
        (("-f", "FOLDER/chat.yaml", "--model", "llama-3.1-8b"), "--file: give --file or --model, not both"),
        (("--model", "llama-3.1-8b", "--service", "chat", "--slo", "ttft=1s"), "--service: names a service of a file"),
        (("--model", "llama-3.1-8b", "--slo", "ttft=1s,ttft:p95=2s"), "--slo: ttft p95 is promised twice"),
        (("--model", "llama-3.1-8b", "--slo", "ttft=1s", "--rps", "inf"), "--rps: inf is no rate"),
        (
            ("-f", "FOLDER/chat.yaml", "--prompt", "8000"),
            "--prompt: 8,000 prompt and 200 output tokens are over the context of 8,192 tokens; lower --prompt",
        ),
        (("--model", "llama-3.1-8b"), "--slo: is missing; write ttft:p95=500ms,tpot:p95=50ms"),
        (
            ("--model", "lama-3.1-8b", "--slo", "ttft=1s"),
            "--model: 'lama-3.1-8b' is neither .*; did you mean llama-3.1-8b",
        ),
        (
            ("--model", "FOLDER/empty", "--slo", "ttft=1s"),
            "--model: .*/empty holds no config.json; name a model folder",
        ),
        (("--model", "FOLDER/gone", "--slo", "ttft=1s"), "--model: .*/gone does not exist"),
        (("--model", "FOLDER/chat.yaml", "--slo", "ttft=1s"), "--model: .*/chat.yaml is a file; name its folder"),
        (
            ("--model", "FOLDER/untyped", "--slo", "ttft=1s"),
            "--model: .*/untyped/config.json: model_type: is missing",
        ),
        (("--model", "llama-3.1-8b", "--slo", "ttft=1s", "--accelerator", ""), "--accelerator: names none"),
        (("-f", "FOLDER/chat.yaml", "-o", "manifest"), "--format: default/chat emulates"),
        (("-f", "FOLDER/pools.yaml", "-o", "manifest"), "--format: default/chat has several pools"),
        (("-f", "FOLDER/classes.yaml", "-o", "manifest"), "--format: default/chat also promises something to batch"),
        (("--model", "llama-3.1-8b", "--slo", "e2e=1s"), "--slo: 'e2e=1s' is no target of ttft or tpot; write"),
        (("--model", "llama-3.1-8b", "--slo", "ttft=soon"), "--slo: 'soon' is not a duration"),
        (("--model", "llama-3.1-8b", "--slo", "ttft:p100=1s"), "--slo: .*the quantile is above p0 and below p100"),
        (("--model", "llama-3.1-8b", "--slo", ","), "--slo: promises nothing"),
        (
            ("--model", "llama-3.1-8b", "--slo", "ttft=1s", "--accelerator", "h101"),
            "--accelerator: 'h101' is not known; did",
        ),
        (("-f", "FOLDER/unknown.yaml"), "--accelerator: 'h1000' is not known; did you mean h100?; write one of"),
        (
            ("-f", "FOLDER/unemulated.yaml"),
            "spec.engine.emulate.model: 'llama-9-9b' cannot be emulated; use one of",
        ),
        (("-f", "FOLDER/unpromised.yaml"), "--slo: class interactive of default/chat promises neither ttft nor tpot"),
        (("-f", "FOLDER/chat.yaml", "--service", "code"), "--service: name one of the services of"),
        (
            ("--model", "llama-3.1-8b", "--slo", "ttft:p97=1s", "-o", "manifest"),
            "--slo: a manifest knows p50, p90, p95",
        ),
    ],
)
def test_wrong_input_is_named_by_option_with_the_fix(arguments: Sequence[str], message: str, folder: Path) -> None:
    result = run(*LOAD, *(word.replace("FOLDER", str(folder)) for word in arguments))
    assert isinstance(result.exception, InvalidInput), result.output
    with pytest.raises(InvalidInput, match=message.replace("?", r"\?")):
        raise result.exception


def test_a_quote_has_a_row_for_each_quantile(folder: Path) -> None:
    arguments = ["--model", "llama-3.3-70b", *CHAT, "--accelerator", "h100"]
    lines = CliRunner().invoke(quote_app, arguments).stdout.splitlines()
    assert [line.split()[0] for line in lines[5:]] == ["90%", "95%", "99%", "99.9%"]
    assert re.search(r"nothing keeps them; \d+ replicas would keep ttft p99\.9", lines[-1])
    rows = json.loads(CliRunner().invoke(quote_app, [*arguments, "--json"]).stdout)["quotes"]
    assert rows[0]["dollars_per_hour"] <= rows[2]["dollars_per_hour"]
    assert rows[3]["nearest"]["replicas"] >= 1
