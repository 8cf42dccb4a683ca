"""The program as a user calls it, in this process: arguments in; text, errors and exit status out."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from paceline_cli.main import COMMANDS, app
from paceline_core import __version__

Call = Callable[..., tuple[int, str, str]]
GOOD = """
apiVersion: paceline.dev/v1alpha1
kind: InferenceService
metadata: {name: chat}
spec:
  model: {source: "builtin://demo"}
  pools: [{name: main, accelerator: cpu}]
"""


EMULATED = f"{GOOD}  engine: {{emulate: {{accelerator: h100, model: llama-3.1-8b}}}}\n"
NOWHERE = [
    (
        EMULATED.replace("h100", "potato"),
        "spec.engine.emulate.accelerator: 'potato' cannot be emulated; use one of a100",
    ),
    (EMULATED.replace("llama-3.1-8b", "gpt-9"), "spec.engine.emulate.model: 'gpt-9' cannot be emulated; use one of"),
    (EMULATED.replace("h100", "l4").replace("llama-3.1-8b", "llama-3.3-70b"), "spec.engine.emulate: "),
    (EMULATED.replace("emulate", "maxModelLen: 9000000, emulate"), "spec.engine.maxModelLen: 9000000 is over"),
    (
        GOOD.replace("pools:", "engine: {kvCache: {dtype: fp8}}\n  pools:"),
        "spec.engine.kvCache.dtype: fp8 and int8 are kept on GPUs alone",
    ),
]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            app([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        code = left.value.code
        return (code if isinstance(code, int) else int(code is not None)), out, err

    return run


def test_the_version_is_the_packages(call: Call) -> None:
    assert call("version") == (0, f"paceline {__version__}\n", "")
    assert call("--version") == call("version")
    assert json.loads(call("version", "--json")[1])["paceline"] == __version__


def test_help_lists_every_command(call: Call) -> None:
    code, out, _ = call("--help")
    assert code == 0
    assert all(name in out for name in COMMANDS)


def test_an_unknown_command_is_bad_input(call: Call) -> None:
    assert call("serve")[0] == 2


def test_lint_is_content_with_a_good_file(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "chat.yaml"
    file.write_text(GOOD)
    assert call("lint", str(file)) == (0, f"{file}: ok\n", "")


def test_lint_takes_files_as_up_does(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "chat.yaml"
    file.write_text(GOOD)
    assert call("lint", "-f", str(file)) == call("lint", str(file))
    code, _, err = call("lint")
    assert (code != 0, "FILE" in err) == (True, True)


@pytest.mark.real
def test_lint_reads_standard_input_where_a_dash_stands_for_a_file() -> None:
    argv = [sys.executable, "-m", "paceline_cli", "lint", "-"]
    text = f"{GOOD}  drainTimeout: 5m\n"
    done = subprocess.run(argv, input=text, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "error: -, document 1 (InferenceService chat): spec.drainTimeout: unknown field; "
        "did you mean spec.rollout.drainTimeout?\n"
    )


@pytest.mark.real
def test_local_commands_start_without_what_only_a_worker_needs() -> None:
    """torch alone takes longer to import than `lint` takes to run."""
    program = (
        "import sys, paceline_cli.commands.lint, paceline_cli.up.command\n"
        "print([name for name in ('torch', 'transformers', 'celpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


def test_lint_prints_every_fault_of_every_file(call: Call, tmp_path: Path) -> None:
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    one.write_text(GOOD.replace("accelerator: cpu", "accelerator: cpu, colour: red").replace("model:", "modle:"))
    two.write_text(GOOD.replace("chat", "Chat"))
    code, _, err = call("lint", str(one), str(two), str(tmp_path / "missing.yaml"))
    lines = err.splitlines()
    assert code == 1
    assert all(line.startswith("error: ") for line in lines)
    assert any("spec.modle: unknown field; did you mean model?" in line for line in lines)
    assert any("spec.pools[0].colour" in line for line in lines)
    assert any("two.yaml" in line and "metadata.name" in line for line in lines)
    assert any("missing.yaml: cannot be read" in line for line in lines)


def test_lint_tells_every_error_and_what_is_not_served_in_one_go(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "chat.yaml"
    malformed = GOOD.replace("accelerator: cpu", "accelerator: cpu, colour: red")
    broken = GOOD.replace("name: chat", "name: small").replace(
        "accelerator: cpu", "accelerator: cpu, replicas: {min: 3, max: 2}"
    )
    served = GOOD.replace("name: chat", "name: other") + "  engine: {speculative: {method: ngram}}\n"
    file.write_text(f"{malformed}---{broken}---{served}---\na: [1")
    code, _, err = call("lint", str(file))
    assert code == 1
    for told in ("pools[0].colour", "pools[0].replicas.min", "is not YAML", "error: not served by this version: "):
        assert told in err


@pytest.mark.parametrize(("text", "message"), NOWHERE)
def test_lint_refuses_what_this_version_does_not_serve_in_one_sentence_each(
    call: Call, tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "chat.yaml"
    file.write_text(text)
    code, out, err = call("lint", str(file))
    assert (code, out) == (1, "")
    (line,) = err.splitlines()
    assert line.startswith("error: not served by this version: ")
    assert message in line
    judged = json.loads(call("lint", "--json", str(file))[1])
    assert judged["unserved"] == judged["files"]
    assert len(judged["files"][str(file)]) == 1


def test_lint_refuses_a_route_that_nobody_would_answer_for(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "chat.yaml"
    route = GOOD.replace("InferenceService", "InferenceRoute").partition("spec:")[0]
    file.write_text(f"{route}spec: {{model: m, backends: [{{url: 'https://api.example.com/v1'}}]}}")
    code, _, err = call("lint", str(file))
    assert code == 1
    assert "error: not served by this version: " in err
    assert "spec.backends: this version does not forward to outside endpoints; name a service" in err


def test_of_six_hundred_faults_a_hundred_are_told_and_the_others_counted(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "chat.yaml"
    variables = ", ".join(["{name: 1, value: 2}"] * 300)
    file.write_text(GOOD + f"  runtime: {{env: [{variables}]}}\n")
    code, _, err = call("lint", str(file))
    lines = err.splitlines()
    assert (code, len(lines)) == (1, 101)
    assert lines[-1] == f"error: {file}: 500 more like these"
    judged = json.loads(call("lint", "--json", str(file))[1])
    assert len(judged["files"][str(file)]) == 100
    assert judged["more"][str(file)] == 500
    code, _, err = call("up", "-f", str(file), "--state", str(tmp_path / "state"))
    assert (code, err.splitlines()[-1]) == (2, "error: 500 more like these")


def test_lint_notes_what_only_this_machine_lacks_and_calls_the_file_ok(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "chat.yaml"
    file.write_text(GOOD.replace("builtin://demo", "file:///nonexistent"))
    code, out, err = call("lint", str(file))
    assert (code, out) == (0, f"{file}: ok\n")
    assert err.startswith("note: not served on this machine: ")
    assert "spec.model.source: /nonexistent is not a folder on this machine" in err
    assert json.loads(call("lint", "--json", str(file))[1])["unserved"] == {str(file): []}


def test_strict_lint_fails_on_notes_about_a_manifest_and_not_on_those_about_this_machine(
    call: Call, tmp_path: Path
) -> None:
    file, elsewhere = tmp_path / "chat.yaml", tmp_path / "elsewhere.yaml"
    file.write_text(GOOD.replace("accelerator: cpu", "accelerator: cpu, replicas: {min: 0}"))
    elsewhere.write_text(GOOD.replace("builtin://demo", "file:///nonexistent"))
    assert call("lint", str(file))[:2] == (0, f"{file}: ok\n")
    code, out, err = call("lint", "--strict", str(file), str(elsewhere))
    error, note = err.splitlines()
    assert (code, out) == (1, f"{elsewhere}: ok\n")
    assert error.startswith(f"error: {file}, document 1 (InferenceService chat): every replicas.min is 0")
    assert note.startswith("note: not served on this machine: ")
    assert call("lint", "--strict", str(elsewhere))[0] == 0
    judged = json.loads(call("lint", "--strict", "--json", str(file))[1])
    assert (len(judged["files"][str(file)]), judged["notes"][str(file)], judged["unserved"][str(file)]) == (1, [], [])


def test_lint_notes_who_answers_to_a_shared_name(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "chat.yaml"
    served = GOOD.replace('"builtin://demo"', '"builtin://demo", servedName: demo')
    file.write_text(f"{served}---{served.replace('name: chat', 'name: other')}")
    code, _, err = call("lint", str(file))
    assert code == 0
    assert err == (
        "note: default/other: the older service default/chat answers to 'demo'; change spec.model.servedName of one\n"
    )


@pytest.mark.parametrize("command", [("keys", "create", "team"), ("up", "-f", "FILE", "--port", "0")])
@pytest.mark.parametrize("state", ["/proc/x", "FILE", "FILE/below"])
def test_an_impossible_state_folder_is_named(call: Call, tmp_path: Path, command: tuple[str, ...], state: str) -> None:
    file = tmp_path / "chat.yaml"
    file.write_text(GOOD)
    code, _, err = call(*(word.replace("FILE", str(file)) for word in (*command, "--state", state)))
    assert code == 2
    assert err.startswith(f"error: {state.replace('FILE', str(file))}")
    assert err.endswith("; choose another folder with --state\n")
    assert len(err.splitlines()) == 1


def test_lint_speaks_json(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "chat.yaml"
    file.write_text(GOOD.replace("model:", "modle:"))
    code, out, _ = call("lint", "--json", str(file))
    assert code == 1
    assert len(json.loads(out)["files"][str(file)]) >= 1


def test_a_key_is_shown_once_and_listed_by_its_id(call: Call, tmp_path: Path) -> None:
    state = str(tmp_path)
    code, out, _ = call("keys", "create", "team", "--state", state)
    key = out.strip()
    assert code == 0
    assert key.startswith("pl_")
    listed = json.loads(call("keys", "list", "--state", state, "--json")[1])["keys"]
    assert [(row["tenant"], row["id"]) for row in listed] == [("team", key.split("_")[1])]
    assert key.split("_")[2] not in json.dumps(listed)


def test_no_keys_are_said_and_a_folder_that_is_not_there_is_an_error(call: Call, tmp_path: Path) -> None:
    assert call("keys", "list", "--state", str(tmp_path)) == (0, "", f"there are no keys in {tmp_path}\n")
    assert json.loads(call("keys", "list", "--json", "--state", str(tmp_path))[1]) == {"keys": []}
    typo = tmp_path / "typo"
    fix = "`paceline up` makes it, or name another one with --state"
    assert call("keys", "list", "--state", str(typo)) == (1, "", f"error: there is no {typo}; {fix}\n")


def test_a_revoked_key_is_listed_no_more(call: Call, tmp_path: Path) -> None:
    state = str(tmp_path)
    identity = json.loads(call("keys", "create", "team", "--state", state, "--json")[1])["id"]
    assert call("keys", "revoke", identity, "--state", state)[0] == 0
    assert identity not in call("keys", "list", "--state", state)[1]
    code, _, err = call("keys", "revoke", identity, "--state", state)
    assert (code, err) == (1, f"error: there is no key {identity!r}; `paceline keys list` shows them\n")


@pytest.mark.parametrize("tenant", ["Team", "", "a b", "x" * 64])
def test_a_key_for_an_impossible_tenant_is_bad_input(call: Call, tmp_path: Path, tenant: str) -> None:
    code, _, err = call("keys", "create", tenant, "--state", str(tmp_path))
    assert code == 2
    assert err.startswith("error: tenant: ")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("command", [("status",), ("status", "chat"), ("why", "chat"), ("bench",)])
def test_without_a_run_commands_say_how_to_start_one(call: Call, tmp_path: Path, command: tuple[str, ...]) -> None:
    code, _, err = call(*command, "--state", str(tmp_path))
    assert code == 1
    assert err.startswith("error: nothing runs in ")
    assert "paceline up" in err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no object"),
        ("a: [", "is not YAML"),
        (GOOD.replace("model:", "modle:"), "spec.modle"),
        (GOOD.replace("builtin://demo", "ftp://x"), "spec.model.source"),
        (GOOD.replace("builtin://demo", "hf://org/name"), "spec.model.source: this version loads"),
        (
            GOOD.replace("builtin://demo", "file:///nonexistent"),
            "spec.model.source: /nonexistent is not a folder on th",
        ),
        *NOWHERE,
    ],
)
def test_up_refuses_bad_manifests_before_it_starts_anything(
    call: Call, tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "chat.yaml"
    file.write_text(text)
    code, out, err = call("up", "-f", str(file), "--state", str(tmp_path / "state"))
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert message in err
    assert "Traceback" not in err
    assert not (tmp_path / "state").exists()


def test_up_names_a_bad_duration(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "chat.yaml"
    file.write_text(GOOD)
    code, _, err = call("up", "-f", str(file), "--duration", "soon")
    assert (code, err.startswith("error: --duration: 'soon' is not a duration")) == (2, True)
