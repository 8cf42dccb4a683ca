"""A real Prometheus on a loopback port, and a tiny exporter that says what the test wants."""

import asyncio
import contextlib
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TypeVar

import httpx
import pytest
import yaml

T = TypeVar("T")


@dataclass
class Page:
    """An HTTP server that answers every GET with `status` and `body`; `stall` makes it wait for ever instead."""

    status: int = 200
    body: str = ""
    content_type: str = "text/plain"
    stall: threading.Event | None = None
    asked: list[str] = field(default_factory=list)
    url: str = ""
    host: str = ""

    def __post_init__(self) -> None:
        page = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page.asked.append(self.path)
                if page.stall is not None:
                    page.stall.wait(20)
                    return
                body = page.body.encode()
                self.send_response(page.status)
                self.send_header("content-type", page.content_type)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            def handle_error(self, request: object, client_address: object) -> None:
                """A reader that gave up is what some tests are about."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.host = f"127.0.0.1:{self._server.server_address[1]}"
        self.url = f"http://{self.host}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        if self.stall is not None:
            self.stall.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def page() -> Iterator[Page]:
    made = Page()
    yield made
    made.stop()


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@dataclass
class Prometheus:
    """A running server and the exporter it scrapes five times a second."""

    url: str
    exporter: Page


@pytest.fixture(scope="session")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    program = shutil.which("prometheus")
    if program is None:
        pytest.fail("no `prometheus` on PATH; install it: apt-get install prometheus")
    exporter, folder = Page(), tmp_path_factory.mktemp("prometheus")
    process, url = _started(program, folder, exporter.host)
    yield Prometheus(url, exporter)
    process.terminate()
    process.wait(10)
    exporter.stop()


def _started(program: str, folder: Path, target: str, attempts: int = 3) -> tuple[subprocess.Popen[bytes], str]:
    """A free port may be taken by somebody else before Prometheus takes it; then another is tried."""
    for _ in range(attempts):
        port = free_port()
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(_argv(program, folder, target, port), stderr=log)
        while process.poll() is None:
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"http://127.0.0.1:{port}/-/ready", timeout=1.0).is_success:
                    return process, f"http://127.0.0.1:{port}"
            time.sleep(0.05)
    pytest.fail(f"prometheus does not start: {(folder / 'log').read_text()[-500:]}")


def _argv(program: str, folder: Path, target: str, port: int) -> list[str]:
    config = {
        "global": {"scrape_interval": "200ms", "scrape_timeout": "200ms"},
        "scrape_configs": [{"job_name": "gateway", "static_configs": [{"targets": [target]}]}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    return [
        program,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]


async def until(ask: Callable[[], Awaitable[T]], good: Callable[[T], bool], limit_s: float = 60.0) -> T:
    """Ask again until the answer is good; fails with the last answer after `limit_s`."""
    answer = await ask()
    try:
        async with asyncio.timeout(limit_s):
            while not good(answer):
                await asyncio.sleep(0.1)
                answer = await ask()
    except TimeoutError:
        pytest.fail(f"still {answer!r} after {limit_s:g} s")
    return answer
