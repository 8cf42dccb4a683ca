"""The worker as a process, its engine a real one that follows a script: signals, ports, kills, and what is left."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from tests.worker.conftest import TEXT
from tests.worker.harness import events, text_of
from tests.worker.processes import HTTP, LIMIT_S, WorkerProcess, get, until, worker_process
from tests.worker.scripted_engine import Script

from paceline_core.errors import Code

pytestmark = pytest.mark.real

CHAT = "/v1/chat/completions"
HELLO: dict[str, Any] = {"model": "chat", "messages": [{"role": "user", "content": "hello"}]}
STREAM = HELLO | {"stream": True}
MODULES = 10_000
"""Objects of a worker's modules, at the very least."""


class Streaming(threading.Thread):
    """A client that reads one stream to its end."""

    def __init__(self, worker: WorkerProcess, body: dict[str, Any] = STREAM) -> None:
        super().__init__(daemon=True)
        self._url = worker.url + CHAT
        self._body = body
        self.status = 0
        self.read = b""
        self.start()

    def run(self) -> None:
        with HTTP.stream("POST", self._url, json=self._body) as response:
            self.status = response.status_code
            for data in response.iter_raw():
                self.read += data

    def done(self) -> bytes:
        """All that came."""
        self.join(LIMIT_S)
        return self.read


@pytest.fixture
def slow(folder: Path, reply: list[int]) -> Iterator[WorkerProcess]:
    """A ready worker that takes a while for an answer."""
    with worker_process(folder, Script(reply=reply * 4, pause_s=0.01), drain_timeout_s=LIMIT_S) as worker:
        worker.ready()
        yield worker


def test_what_lives_as_long_as_the_worker_is_no_work_for_its_collector(folder: Path, tmp_path: Path) -> None:
    counting = "open(f'{FOLDER}/{os.getpid()}', 'w').write(str(gc.get_freeze_count()))"
    noted = f"import atexit, gc, os\n\nFOLDER = {str(tmp_path)!r}\natexit.register(lambda: {counting})\n"
    (tmp_path / "sitecustomize.py").write_text(noted)
    with worker_process(folder, Script(), environ={"PYTHONPATH": str(tmp_path)}) as worker:
        worker.ready()
        worker.signal(signal.SIGTERM)
        assert worker.ended() == 0
        assert int((tmp_path / str(worker.process.pid)).read_text()) > MODULES


def test_sigterm_drains_and_exits_with_0(slow: WorkerProcess) -> None:
    client = Streaming(slow)
    until(lambda: client.read)
    engine = slow.engine
    slow.signal(signal.SIGTERM)
    until(lambda: get(f"{slow.url}/readyz") == 503)
    refusal = HTTP.post(slow.url + CHAT, json=HELLO)
    assert (refusal.status_code, refusal.headers["x-paceline-draining"]) == (503, "1")
    assert text_of(client.done()) == TEXT * 4
    assert slow.ended() == 0
    assert not engine.is_running()


def test_a_retired_worker_finishes_its_stream_comes_back_and_can_be_told_to_end(slow: WorkerProcess) -> None:
    client = Streaming(slow)
    until(lambda: client.read)
    url, headers = f"{slow.url}/internal/retire", slow.autoscaler_headers
    assert HTTP.post(url, json={"seconds": 30}, headers=headers).json()["retired"] is True
    assert get(f"{slow.url}/readyz") == 503
    assert HTTP.post(slow.url + CHAT, json=HELLO).headers["x-paceline-draining"] == "1"
    assert text_of(client.done()) == TEXT * 4
    assert HTTP.delete(url, headers=headers).json()["retired"] is False
    assert get(f"{slow.url}/readyz") == 200
    assert HTTP.post(url, json={"seconds": 0.2}, headers=headers).json()["retired"] is True
    until(lambda: get(f"{slow.url}/readyz") == 200)
    assert HTTP.post(url, json={"seconds": 30}, headers=headers).json()["retired"] is True
    slow.signal(signal.SIGTERM)
    assert slow.ended() == 0


def test_a_second_signal_ends_it_now_with_an_error_event(slow: WorkerProcess) -> None:
    client = Streaming(slow)
    until(lambda: client.read)
    slow.signal(signal.SIGTERM)
    until(lambda: "draining" in slow.said())
    slow.signal(signal.SIGINT)
    assert slow.ended() == 0
    *_, error, done = events(client.done())
    assert (error["error"]["code"], done) == (Code.STREAM_LOST, "[DONE]")


def test_an_idle_worker_ends_at_once_and_leaves_nothing(slow: WorkerProcess) -> None:
    url, engine = slow.url, slow.engine
    slow.signal(signal.SIGINT)
    assert slow.ended() == 0
    assert get(f"{url}/healthz") == 0
    assert not engine.is_running()


def test_a_loading_worker_ends_on_a_signal(folder: Path) -> None:
    with worker_process(folder, Script(fault="hold", phase="loading")) as worker:
        assert get(f"{worker.url}/healthz") == 200
        assert get(f"{worker.url}/readyz") == 503
        worker.signal(signal.SIGTERM)
        assert worker.ended() == 0


def test_what_strangers_send_leaves_no_line_in_the_log(slow: WorkerProcess) -> None:
    with socket.create_connection(("127.0.0.1", int(slow.url.rpartition(":")[2])), LIMIT_S) as stranger:
        stranger.sendall(b"rubbish\r\n\r\n")
        assert stranger.recv(100).startswith(b"HTTP/1.1 400")
    assert HTTP.post(slow.url + CHAT, json=HELLO).status_code == 200
    assert {json.loads(line)["logger"].partition(".")[0] for line in slow.said().splitlines()} == {"paceline_workers"}


def test_a_load_stream_does_not_hold_up_the_end(slow: WorkerProcess) -> None:
    with HTTP.stream("GET", f"{slow.url}/internal/load", headers=slow.gateway_headers) as response:
        lines = response.iter_lines()
        assert json.loads(next(lines))["state"] == "ready"
        slow.signal(signal.SIGTERM)
        assert [json.loads(line)["state"] for line in lines][-1] == "draining"
    assert slow.ended() == 0


def test_a_killed_worker_takes_its_engine_along(slow: WorkerProcess) -> None:
    engine = slow.engine
    slow.signal(signal.SIGKILL)
    slow.ended()
    until(lambda: not engine.is_running() or engine.status() == psutil.STATUS_ZOMBIE)


def test_a_port_in_use_is_one_clear_line(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with worker_process(folder, Script(), listen={"port": port}) as worker:
            assert worker.ended() == 2
            assert worker.said() == (
                f"paceline worker: listen: 127.0.0.1:{port} is already in use; "
                "stop the other program or choose another port\n"
            )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"listen": {"host": "no.such.host.invalid"}, "anonymous": None},
            "listen: no.such.host.invalid:0 is no address:",
        ),
        ({"model": "hf://org/name"}, "model: hf://org/name: this version does not fetch hf:// sources"),
    ],
)
def test_a_wrong_setting_is_one_clear_line(folder: Path, changes: dict[str, Any], words: str) -> None:
    with worker_process(folder, Script(), **changes) as worker:
        assert worker.ended() == 2
        assert worker.said().count("\n") == 1
        assert words in worker.said()


def test_a_gpu_that_is_not_there_is_a_wrong_setting(folder: Path) -> None:
    hidden = {"CUDA_VISIBLE_DEVICES": ""}
    with worker_process(folder, engine={"device": "cuda"}, environ=hidden) as worker:
        assert worker.ended() == 2
        assert worker.said().splitlines()[-1].startswith("paceline worker: engine.device: torch finds no CUDA GPU here")


@pytest.mark.parametrize(
    ("argv", "words"), [([], "PACELINE_CONFIG: is not set"), (["--port", "1"], "unrecognized arguments: --port 1")]
)
def test_a_wrong_call_is_told_what_is_missing(argv: list[str], words: str) -> None:
    environ = {name: value for name, value in os.environ.items() if name != "PACELINE_CONFIG"}
    command = [sys.executable, "-m", "paceline_workers.main", *argv]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 2
    assert words in done.stderr.splitlines()[-1]


def test_an_engine_that_cannot_load_ends_the_worker_with_its_words(folder: Path) -> None:
    with worker_process(folder, Script(fault="failed", phase="loading")) as worker:
        assert worker.ended() == 1
        last = worker.said().splitlines()[-1]
        assert last == "paceline worker: model.safetensors: is truncated; download it again"
        assert "Traceback" not in worker.said()


def test_an_engine_killed_while_loading_is_started_again(folder: Path, reply: list[int]) -> None:
    once = folder / "once"
    script = Script(reply=reply, fault="hold", phase="loading", once=str(once))
    with worker_process(folder, script) as worker:
        until(once.exists)
        worker.engine.kill()
        worker.ready()
        assert HTTP.post(worker.url + CHAT, json=HELLO).json()["choices"][0]["message"]["content"] == TEXT


@pytest.mark.parametrize("phase", ["queued", "prefill", "decode"])
def test_an_engine_killed_at_work_is_answered_for_and_replaced(folder: Path, reply: list[int], phase: Any) -> None:
    once = folder / "once"
    script = Script(reply=reply, fault="hold", phase=phase, once=str(once), pause_s=0.002)
    with worker_process(folder, script) as worker:
        worker.ready()
        client = Streaming(worker)
        gauge = "waiting" if phase == "queued" else "running"
        until(lambda: holds_request(worker, gauge) if phase != "decode" else client.read)
        engine = worker.engine
        once.touch()
        engine.kill()
        error = events(client.done())[-2] if phase == "decode" else json.loads(client.done())
        assert error["error"]["code"] == Code.ENGINE_FAILED
        assert client.status == (200 if phase == "decode" else 500)
        until(lambda: not engine.is_running())
        worker.ready()
        assert text_of(Streaming(worker).done()) == TEXT


def holds_request(worker: WorkerProcess, gauge: str) -> bool:
    lines = HTTP.get(f"{worker.url}/metrics").text.splitlines()
    return any(line.startswith(f"paceline_scheduler_{gauge}_requests{{") and line.endswith(" 1.0") for line in lines)


def test_a_stopped_engine_is_killed_by_the_watchdog_and_replaced(folder: Path, reply: list[int]) -> None:
    with worker_process(folder, Script(reply=reply * 100, pause_s=0.01), watchdog_s=0.5) as worker:
        worker.ready()
        client, engine = Streaming(worker), worker.engine
        until(lambda: client.read)
        engine.suspend()
        assert events(client.done())[-2]["error"]["code"] == Code.ENGINE_FAILED
        until(lambda: not engine.is_running())
        worker.ready()


def test_a_client_gone_mid_stream_frees_the_engine(folder: Path, reply: list[int]) -> None:
    log = folder / "engine.log"
    with worker_process(folder, Script(reply=reply, fault="hold", phase="decode", log=str(log))) as worker:
        worker.ready()
        with HTTP.stream("POST", worker.url + CHAT, json=STREAM) as response:
            next(response.iter_raw())
        until(lambda: "Abort" in log.read_text())


def test_a_client_that_pauses_loses_nothing(folder: Path, reply: list[int]) -> None:
    """The answer is larger than what the sockets hold, so the worker must keep the rest for its client."""
    script = Script(reply=reply, times=400, context=1 << 20)
    with worker_process(folder, script) as worker, socket.socket() as client:
        worker.ready()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        post(client, worker, STREAM)
        until(lambda: steps(worker) >= 400 * len(reply))
        body = b""
        while b"[DONE]" not in body and (data := client.recv(1 << 16)):
            body += data
    assert text_of(body) == TEXT * 400


READERS = 4
MOST_BYTES = 128 << 20
"""For all readers together: 70 MB by measure, 420 MB if nobody counted what waits for them."""


def test_clients_that_read_nothing_cost_bounded_memory(folder: Path, reply: list[int]) -> None:
    log = folder / "engine.log"
    script = Script(reply=reply, times=700, per_frame=64, context=1 << 20, logprobs=True, log=str(log))
    with worker_process(folder, script) as worker, contextlib.ExitStack() as clients:
        worker.ready()
        process = psutil.Process(worker.process.pid)
        before = process.memory_info().rss
        for ask in (post, post_message):
            for _ in range(READERS):
                client = clients.enter_context(socket.socket())
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                ask(client, worker, STREAM | {"logprobs": True, "top_logprobs": 20})
        until(lambda: log.exists() and log.read_text().count("Submit") == 2 * READERS)
        until(lambda: total(worker, "paceline_scheduler_running_requests{") == 0)
        assert process.memory_info().rss - before < MOST_BYTES
        assert get(f"{worker.url}/readyz") == 200


def post_message(client: socket.socket, worker: WorkerProcess, body: dict[str, Any]) -> None:
    """A WebSocket handshake, and one masked frame."""
    host, port = worker.url.removeprefix("http://").split(":")
    client.settimeout(LIMIT_S)
    client.connect((host, int(port)))
    upgrade = ["upgrade: websocket", "connection: upgrade", "sec-websocket-version: 13"]
    lines = [f"GET {CHAT} HTTP/1.1", "host: x", *upgrade, f"sec-websocket-key: {'A' * 22}==", "", ""]
    client.sendall("\r\n".join(lines).encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += client.recv(1)
    assert head.startswith(b"HTTP/1.1 101 ")
    content = json.dumps(body).encode()
    client.sendall(b"\x81\xfe" + len(content).to_bytes(2, "big") + bytes(4) + content)


def post(client: socket.socket, worker: WorkerProcess, body: dict[str, Any]) -> None:
    host, port = worker.url.removeprefix("http://").split(":")
    client.settimeout(LIMIT_S)
    client.connect((host, int(port)))
    content = json.dumps(body).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len(content)}\r\n\r\n"
    client.sendall(head.encode() + content)


def steps(worker: WorkerProcess) -> float:
    return total(worker, "paceline_scheduler_steps_total{")


def total(worker: WorkerProcess, series: str) -> float:
    lines = HTTP.get(f"{worker.url}/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(series))


def test_a_body_over_the_cap_is_answered_while_it_is_still_coming(folder: Path) -> None:
    with worker_process(folder, Script(), body_limit=2048) as worker:
        worker.ready()
        host, port = worker.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), LIMIT_S) as client:
            head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: 100000000\r\n\r\n"
            client.sendall(head.encode() + b"x" * 10_000)
            answer = b""
            while b"request_too_large" not in answer:
                answer += client.recv(65536)
        assert answer.startswith(b"HTTP/1.1 413 ")


def test_a_connection_is_kept_over_errors(slow: WorkerProcess) -> None:
    with httpx.Client(base_url=slow.url) as client:
        for body in (b"{", b'{"model": "other", "messages": [{"role": "user"}]}'):
            refusal = client.post(CHAT, content=body)
            assert "connection" not in refusal.headers
        assert client.get("/v1/models").status_code == 200
