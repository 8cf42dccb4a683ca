"""A real Prometheus on a loopback port, and a tiny exporter that says what the test wants."""

import asyncio
import shutil
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeVar

import pytest
from tests.prometheus_server import prometheus_server

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
    config = {
        "global": {"scrape_interval": "200ms", "scrape_timeout": "200ms"},
        "scrape_configs": [{"job_name": "gateway", "static_configs": [{"targets": [exporter.host]}]}],
    }
    with prometheus_server(program, folder, config) as url:
        yield Prometheus(url, exporter)
    exporter.stop()


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
