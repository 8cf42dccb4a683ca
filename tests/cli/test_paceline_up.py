"""`paceline up` whole: the real gateway, autoscaler, workers (emulated, so that they start fast) and Prometheus."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from tests.cli.stackproc import EMULATED, Api, Up, alive, path_without, said, up
from tests.cli.waiting import wait_until
from tests.simulator.test_past_traffic import LOG, summary

from paceline_autoscaler.model.work_history import BIN_S, WorkHistory, code_of
from paceline_autoscaler.output.scale_writer import StoredState, state_of, stored_of, stored_texts
from paceline_autoscaler.state import Knowledge
from paceline_core.clock import SystemClock

pytestmark = pytest.mark.real
CHAT = Path(__file__).parents[2] / "examples" / "chat.yaml"
SIMULATOR_PAGE = Path(__file__).parents[2] / "docs" / "simulator.md"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One run for all tests that leave it as it was."""
    with up(tmp_path_factory.mktemp("shared")) as run:
        run.ready()
        yield run


@pytest.fixture
def api(shared: Up) -> Api:
    found = shared.ready()
    wait_until(found.answers)
    assert found.chat().status_code == 200
    return found


def files(state: Path) -> list[str]:
    return sorted(str(path.relative_to(state)) for path in state.rglob("*") if path.is_file())


def events(shared: Up) -> list[str]:
    """What a user is told about processes."""
    run = json.loads(said("status", "--json", "--state", str(shared.state)).stdout)
    return [event["message"] for event in run["events"]]


def kill(shared: Up, module: str) -> None:
    """Kill a part of the run and wait until it is back."""
    before = shared.part(module)
    assert before is not None
    before.kill()
    wait_until(lambda: not alive([before]))
    wait_until(lambda: shared.part(module) is not None)


def test_a_killed_worker_comes_back_and_no_accepted_request_is_lost(shared: Up, api: Api) -> None:
    with ThreadPoolExecutor(4) as clients:
        before = shared.part("paceline_workers.main")
        assert before is not None
        before.kill()
        answers = list(clients.map(lambda _: api.chat(), range(4)))
    assert [answer.status_code for answer in answers] == [200] * 4
    assert shared.part("paceline_workers.main") != before


@pytest.mark.parametrize("module", ["paceline_gateway.main", "paceline_autoscaler.main"])
def test_a_killed_part_comes_back(shared: Up, api: Api, module: str) -> None:
    kill(shared, module)
    wait_until(api.answers)
    wait_until(lambda: api.chat().status_code == 200)  # it listens before it has read what it serves, and to whom
    assert any(f"{module.split('.')[0].partition('_')[2]} ended (signal 9)" in told for told in events(shared))


def test_a_second_run_in_the_same_place_is_refused(shared: Up) -> None:
    again = said("up", "-f", str(EMULATED), "--state", str(shared.state), "--port", "0")
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr.startswith(f"error: {shared.state} belongs to a run that is still up")
    assert str(shared.process.pid) in again.stderr


def test_a_taken_port_is_named(api: Api, tmp_path: Path) -> None:
    port = api.endpoint.rpartition(":")[2]
    refused = said("up", "-f", str(EMULATED), "--state", str(tmp_path), "--port", port)
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"error: --port: 127.0.0.1:{port} is in use (process ")


def test_keys_work_at_once_and_stop_working_at_once(shared: Up, api: Api) -> None:
    state = ("--state", str(shared.state))
    made = json.loads(said("keys", "create", "local", "--json", *state).stdout)
    wait_until(lambda: api.chat(key=made["key"]).status_code == 200)
    assert said("keys", "revoke", made["id"], *state).returncode == 0
    wait_until(lambda: api.chat(key=made["key"]).status_code == 401)


def test_status_shows_the_services_and_the_parts(shared: Up, api: Api) -> None:
    state = ("--state", str(shared.state))
    wait_until(lambda: "default/quick  1/1 ready" in said("status", *state).stdout)
    shown = json.loads(said("status", "--json", *state).stdout)
    assert shown["endpoint"] == f"{api.endpoint}/v1"
    assert set(shown["parts"]) == {"gateway", "autoscaler", "prometheus"}
    assert httpx.get(shown["metrics"]["gateway"], trust_env=False).status_code == 200
    assert shown["logs"] == str(shared.state / "run" / "logs")
    (worker,) = shown["workers"]
    assert f"  quick-main-1  ready  {worker['metrics']}\n" in said("status", *state).stdout
    one = json.loads(said("status", "quick", "--json", *state).stdout)
    assert ([row["name"] for row in one["workers"]], len(one["services"])) == (["quick-main-1"], 1)
    unknown = said("status", "nobody", *state)
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert unknown.stderr == "error: default/nobody is not served here; the services are default/quick\n"
    assert httpx.get(worker["metrics"], trust_env=False).status_code == 200
    assert httpx.post(f"{worker['url']}/v1/completions", json={}, trust_env=False).status_code == 401


def test_top_shows_service_tenant_and_worker_of_the_run(shared: Up, api: Api) -> None:
    state = ("--once", "--interval", "0.5", "--state", str(shared.state))
    seen = json.loads(said("top", "--json", *state).stdout)
    assert (seen["gateways"], seen["silent"]) == (["gateway"], [])
    (row,) = seen["classes"]
    assert (row["service"], row["name"], row["in_flight"], row["queued"]) == ("default/quick", "interactive", 0, 0)
    (worker,) = seen["workers"]
    assert (worker["worker"], worker["state"], worker["circuit"]) == ("quick-main-1", "ready", "closed")
    shown = said("top", "--service", "quick", *state).stdout
    assert shown.startswith("1 gateway: gateway; over the last ")
    assert api.key not in json.dumps(seen) + shown
    unknown = said("top", "--service", "nobody", *state)
    assert (unknown.returncode, "the services are default/quick" in unknown.stderr) == (1, True)


def test_why_tells_the_last_decisions_in_sentences(shared: Up) -> None:
    state = ("--state", str(shared.state))
    wait_until(lambda: said("why", "quick", *state).stdout.startswith("20"))
    (entry, *_) = json.loads(said("why", "quick", "--json", *state).stdout)
    told = said("why", "default/quick", *state).stdout
    assert entry["decision"]["sentence"] in told
    assert said("why", "quick", "--since", "1h", *state).stdout.startswith("20")
    unknown = said("why", "nobody", *state)
    assert (unknown.returncode, "the services are default/quick" in unknown.stderr) == (1, True)


def test_what_if_plays_the_past_of_the_service_and_says_what_it_lacks(shared: Up, api: Api) -> None:
    """The run is too young for a past, so one is put where the autoscaler has stored its own; the next one reads it."""
    state = ("--state", str(shared.state))
    lacking = "minutes of the service's work are known, and what-if needs 5"
    wait_until(lambda: lacking in said("what-if", "quick", "--rps", "2x", *state).stderr)  # it may just have started
    unknown = said("what-if", "nobody", "--rps", "2x", *state)
    assert (unknown.returncode, "the services are default/quick" in unknown.stderr) == (1, True)

    put_past(shared, minutes=8.0)
    (command,) = re.findall(r"^\.venv/bin/paceline (what-if .*)$", SIMULATOR_PAGE.read_text(), re.MULTILINE)
    asked = (*shlex.split(command.replace(" chat ", " quick ")), *state)
    shown = said(*asked, "--time-limit", "12s")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("default/quick: ttft p95 300ms, 1.5 times the requests\n")
    assert "95% TTFT ≤ 300ms (is 500ms)" in shown.stdout
    assert "dollars an hour" in shown.stdout
    assert "--time-limit" in said(*asked, "--time-limit", "1s").stderr
    found = json.loads(said(*asked, "-o", "json", "--time-limit", "12s").stdout)
    assert found["fluid"]["would_be"]["requests"] == pytest.approx(1.5 * found["fluid"]["as_is"]["requests"], rel=0.02)


def put_past(shared: Up, minutes: float) -> None:
    """Let the autoscaler find so many minutes of work at its next start, and start it."""
    run = json.loads(said("status", "--json", "--state", str(shared.state)).stdout)
    learned = f"{run['metrics']['autoscaler'].removesuffix('/metrics')}/debug/learned?service=default/quick"
    stored, count = httpx.get(learned, trust_env=False).json()["stored"], round(minutes * 60 / BIN_S)
    history = WorkHistory(
        SystemClock().utc().timestamp() // BIN_S * BIN_S - count * BIN_S, bytes([code_of(0.3)]) * count, mean=0.3
    )
    past = StoredState(state_of(stored["state"]), Knowledge((("both", history),)), (summary(LOG),))
    path = f"/state/default/quick?uid={run['services'][0]['metadata'].get('uid', '')}"
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(shared.state / "run" / "api.sock"))) as http:
        assert http.put(f"http://supervisor{path}", json=stored_texts(past)).is_success
    kill(shared, "paceline_autoscaler.main")

    def known() -> bool:
        try:
            answer = httpx.get(learned, trust_env=False)
        except httpx.HTTPError:
            return False
        if not answer.is_success:
            return False
        found = stored_of(answer.json()["stored"])
        return bool(found.state.learned.speeds) and found.knowledge.history("both").known >= count

    wait_until(known)


def test_prometheus_scrapes_every_part(shared: Up) -> None:
    prometheus = shared.part("--web.listen-address=")
    assert prometheus is not None
    words = dict(word.split("=", 1) for word in prometheus.cmdline() if "=" in word)
    url = f"http://{words['--web.listen-address']}/api/v1/query"

    def scraped() -> bool:
        found = httpx.get(url, params={"query": "up"}, trust_env=False).json()["data"]["result"]
        return {row["metric"]["job"]: row["value"][1] for row in found} == dict.fromkeys(
            ("gateway", "autoscaler", "worker"), "1"
        )

    wait_until(scraped)


def test_secrets_are_for_this_user_alone(shared: Up, api: Api) -> None:
    run = shared.state / "run"
    folders = [shared.state, run, *(path for path in run.iterdir() if path.is_dir()), *(run / "parts").iterdir()]
    keys = [shared.state / "keys.json", shared.state / "local.key", *(run / "secrets").iterdir(), run / "api.sock"]
    assert [path for path in (*folders, *keys) if path.exists() and path.stat().st_mode & 0o077] == []
    logs = "".join(path.read_text() for path in (run / "logs").iterdir())
    assert api.key.rpartition("_")[2] not in logs


def test_the_check_of_the_real_model_gives_the_right_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    with up(tmp_path, "--check", file=CHAT) as run:
        checked = run.event("checked")
        assert run.left() == (0, "")
    assert "time to first token" in checked["text"]
    assert checked["tokens"] > 1
    assert checked["ttft_ms"] > 0
    left = files(run.state)
    assert left[:3] == [".keys.lock", "keys.json", "local.key"]
    assert {"run/logs/chat-main-1.log", "run/logs/gateway.log", "run/logs/supervisor.log"} <= set(left)
    assert all(name.startswith("run/logs/") for name in left[3:])


def test_ctrl_c_finishes_the_streams_and_leaves_no_process_no_port_and_no_file(tmp_path: Path) -> None:
    with up(tmp_path) as run:
        api = run.ready()
        parts = run.descendants()
        assert len(parts) >= 4
        lines = []
        for line in api.stream(tokens=200):
            lines.append(line)
            if len(lines) == 5:
                run.interrupt()
        assert lines[-1] == "[DONE]"
        assert '"finish_reason":"length"' in lines[-2]
        assert run.left() == (0, "")
    assert alive(parts) == []
    assert not api.answers()
    assert all(name.startswith("logs/") for name in files(run.state / "run"))
    assert "worker" in (run.state / "run" / "logs" / "quick-main-1.log").read_text()


def test_a_key_for_a_tenant_that_the_run_does_not_know_is_refused_with_those_it_knows(shared: Up) -> None:
    state = ("--state", str(shared.state))
    before = said("keys", "list", *state).stdout
    for name, hint in (("stranger", "; the Tenants are local"), ("locl", "; did you mean local?")):
        made = said("keys", "create", name, *state)
        assert (made.returncode, made.stdout) == (1, "")
        assert made.stderr == (
            f"error: there is no Tenant {name} in this run{hint}; "
            "add it to the manifests and start `paceline up` again\n"
        )
    assert said("keys", "list", *state).stdout == before
    assert said("keys", "create", "local", *state).stderr == ""


def test_a_second_ctrl_c_ends_it_now(tmp_path: Path) -> None:
    with up(tmp_path) as run:
        api = run.ready()
        parts = run.descendants()
        stream = api.stream(tokens=4000)
        next(stream)
        run.interrupt()
        run.event("stopping")
        assert "stopping: open streams are finished first\n" in said("status", "--state", str(run.state)).stdout
        wait_until(lambda: "gateway  draining  " in said("status", "--state", str(run.state)).stdout)
        run.interrupt()
        with pytest.raises(httpx.HTTPError):
            list(stream)
        assert run.left()[0] == 0
    assert alive(parts) == []
    assert all(name.startswith("logs/") for name in files(run.state / "run"))


def test_nothing_outlives_a_killed_supervisor_and_the_next_run_clears_up_even_without_prometheus(
    tmp_path: Path,
) -> None:
    with up(tmp_path) as run:
        run.ready()
        parts = run.descendants()
        run.process.kill()
        run.left()
        wait_until(lambda: not alive(parts))
    left = files(run.state / "run")
    assert left
    assert all(name.startswith("logs/") for name in left)
    assert said("keys", "create", "ghost", "--state", str(run.state)).returncode == 0
    arguments = ("up", "-f", str(EMULATED), "--state", str(run.state), "--port", "0", "--check", "--json")
    again = said(*arguments, env={"PATH": path_without("prometheus")})
    assert again.returncode == 0
    began = json.loads(again.stdout.splitlines()[0])
    assert (began["source"], began["notes"]) == ("embedded", ["keys of ghost open nothing: no such Tenant here"])
    assert all(name.startswith("logs/") for name in files(run.state / "run"))


def test_a_folder_without_a_model_fails_the_start_with_the_workers_own_words(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    text = EMULATED.read_text().replace("builtin://demo", f"file://{empty}")
    file = tmp_path / "lost.yaml"
    file.write_text("\n".join(line for line in text.splitlines() if "emulate:" not in line))
    failed = said("up", "-f", str(file), "--state", str(tmp_path / "state"), "--port", "0")
    assert failed.returncode == 1
    reason = failed.stderr.splitlines()[-1]
    assert reason.startswith("error: quick-main-1 keeps ending: ")
    assert str(empty) in reason
    assert "Traceback" not in failed.stderr
    assert "quick-main-1.log" in files(tmp_path / "state" / "run" / "logs")


def test_one_broken_service_stops_no_other_and_is_told_in_the_status(tmp_path: Path) -> None:
    good = EMULATED.read_text()
    file = tmp_path / "two.yaml"
    file.write_text("\n---\n".join((_broken(tmp_path, good, "lost"), good)))
    with up(tmp_path, file=file) as run:
        api = run.ready()
        assert (api.model, api.chat().status_code) == ("quick", 200)
        shown = said("status", "--state", str(run.state)).stdout
    (line,) = (line for line in shown.splitlines() if line.startswith("default/lost"))
    assert "Workers keep ending" in line
    assert str(tmp_path / "lost") in line


def _broken(folder: Path, text: str, name: str) -> str:
    """The same service under another name, with a model folder that holds nothing."""
    (folder / name).mkdir()
    renamed = text.replace("name: quick", f"name: {name}").replace("builtin://demo", f"file://{folder / name}")
    return "\n".join(line for line in renamed.splitlines() if "emulate:" not in line)


def test_the_live_screen_is_drawn_on_a_terminal_until_the_duration_is_over(tmp_path: Path) -> None:
    main, terminal = os.openpty()
    arguments = ("up", "-f", str(EMULATED), "--state", str(tmp_path), "--port", "0", "--duration", "1s")
    argv = (sys.executable, "-m", "paceline_cli", *arguments)
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen(argv, stdout=terminal, stderr=terminal, env=environment) as process:
        os.close(terminal)
        text = _read_all(main)
    assert process.returncode == 0
    assert "curl -N" in text
    assert "default/quick" in text
    assert "1/1 ready" in text
    assert text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l"), "the cursor is shown again"


def _read_all(terminal: int) -> str:
    data = b""
    try:
        while chunk := os.read(terminal, 65536):
            data += chunk
    except OSError:
        pass  # Linux says so when the last writer is gone
    os.close(terminal)
    return data.decode(errors="replace")


def test_a_closed_terminal_ends_it_in_order_too(shared: Up) -> None:
    """The last test of this file: it ends the run that the others share."""
    shared.ready()
    parts = shared.descendants()
    shared.process.send_signal(signal.SIGHUP)
    assert shared.left() == (0, "")
    assert shared.events()[-1] == {"event": "stopped", "logs": str(shared.state / "run" / "logs")}
    assert alive(parts) == []
