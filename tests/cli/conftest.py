"""An API server of one service, and autoscaler pods behind its proxy that answer what a test wants."""

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from tests.cli.test_detail import document

SERVICE = "/apis/paceline.dev/v1alpha1/namespaces/team/inferenceservices/chat"
PODS = "/api/v1/namespaces/paceline-system/pods"
Answers = dict[str, Any]


class ApiServer(http.server.ThreadingHTTPServer):
    """An API server with one service, and autoscaler pods that answer as `answers` says, by name; None: an error."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: Answers = {}
        self.asked: list[dict[str, str]] = []
        self.service: dict[str, Any] = document()

    def kubeconfig(self, folder: Path) -> str:
        """A file that leads a user of the namespace `team` here."""
        config = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.server_port}"}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
        }
        (folder / "kubeconfig").write_text(yaml.safe_dump(config))
        return str(folder / "kubeconfig")


class Handler(http.server.BaseHTTPRequestHandler):
    server: ApiServer

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        found: Any = {"items": [], "metadata": {}}
        if url.path == SERVICE:
            found = self.server.service
        elif url.path == PODS:
            found["items"] = [{"metadata": {"name": name}} for name in self.server.answers]
        elif url.path.startswith(PODS):
            self.server.asked.append({name: value for name, (value,) in parse_qs(url.query).items()})
            found = self.server.answers[url.path.removeprefix(f"{PODS}/").partition(":")[0]]
        self.send_response(500 if found is None else 200)
        self.end_headers()
        self.wfile.write(found if isinstance(found, bytes) else json.dumps(found).encode())

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def cluster() -> Iterator[ApiServer]:
    server = ApiServer()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()
