"""`paceline up` as a child process of a test: started, followed by its JSON lines, always stopped."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
from tests.cli.waiting import wait_until

EMULATED = Path(__file__).with_name("emulated.yaml")
LIMIT_S = 90.0


@dataclass(frozen=True)
class Api:
    """The gateway of a run, as a client sees it; `endpoint` is without its /v1."""

    endpoint: str
    key: str
    model: str

    def chat(self, *, tokens: int = 4, key: str | None = None) -> httpx.Response:
        """One chat that does not stream."""
        body = {"model": self.model, "messages": [{"role": "user", "content": "hello"}], "max_tokens": tokens}
        return self._http(key).post("/v1/chat/completions", json=body)

    def stream(self, tokens: int) -> Iterator[str]:
        """The data lines of one streamed chat."""
        messages = [{"role": "user", "content": "hello"}]
        body = {"model": self.model, "messages": messages, "max_tokens": tokens, "stream": True}
        with self._http(None) as http, http.stream("POST", "/v1/chat/completions", json=body) as response:
            for line in response.iter_lines():
                if line.startswith("data: "):
                    yield line.removeprefix("data: ")

    def answers(self) -> bool:
        """Whether anybody listens."""
        try:
            self._http(None).get("/")
        except httpx.ConnectError:
            return False
        return True

    def _http(self, key: str | None) -> httpx.Client:
        headers = {"authorization": f"Bearer {key or self.key}"}
        return httpx.Client(base_url=self.endpoint, headers=headers, timeout=LIMIT_S, trust_env=False)


@dataclass(frozen=True)
class Up:
    """One run."""

    process: subprocess.Popen[bytes]
    state: Path
    out: Path
    err: Path

    def events(self) -> list[dict[str, Any]]:
        """What it has said so far."""
        return [json.loads(line) for line in self.out.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def event(self, name: str) -> dict[str, Any]:
        """The last event of that name; an AssertionError with standard error when the run ends without one."""
        found: list[dict[str, Any]] = []

        def seen() -> bool:
            ended = self.process.poll() is not None
            found[:] = [event for event in self.events() if event["event"] == name]
            assert found or not ended, f"ended without {name!r}: {self.err.read_text()}"
            return bool(found)

        wait_until(seen, LIMIT_S)
        return found[-1]

    def ready(self) -> Api:
        """How to use it, once it is up."""
        event = self.event("ready")
        return Api(event["endpoint"].removesuffix("/v1"), event["key"], event["model"])

    def left(self) -> tuple[int, str]:
        """Exit status and standard error, after its end."""
        return self.process.wait(LIMIT_S), self.err.read_text()

    def interrupt(self) -> None:
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def descendants(self) -> list[psutil.Process]:
        """All processes of the run."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def part(self, word: str) -> psutil.Process | None:
        """The process with this word on its command line."""
        return next((child for child in alive(self.descendants()) if word in " ".join(_cmdline(child))), None)


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that still run."""
    return [process for process in processes if _runs(process)]


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # it ended between the two questions
        return False


def _cmdline(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def said(*arguments: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the program to its end."""
    argv = (sys.executable, "-m", "paceline_cli", *arguments)
    environment = {**os.environ, **(env or {})}
    return subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S, env=environment, check=False)


@contextmanager
def up(scratch: Path, *more: str, file: Path = EMULATED) -> Iterator[Up]:
    """A run that is gone after the block, whatever happened in it. It ignores no signal, even if the tests do."""
    out, err, state = scratch / "up.out", scratch / "up.err", scratch / "state"
    argv = ["env", "--default-signal", sys.executable, "-m", "paceline_cli", "up", "-f", str(file)]
    argv += ["--state", str(state), "--json", "--port", "0"]
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = subprocess.Popen([*argv, *more], stdout=stdout, stderr=stderr)
    try:
        yield Up(process, state, out, err)
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()


def path_without(program: str) -> str:
    """PATH without the folders that hold a program."""
    return os.pathsep.join(p for p in os.environ["PATH"].split(os.pathsep) if shutil.which(program, path=p) is None)
