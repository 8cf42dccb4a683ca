"""`kubectl paceline` where there is no cluster to speak of: one line, the fix, the exit status."""

import http.server
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from paceline_cli.main import plugin

Call = Callable[..., tuple[int, str, str]]
COMMANDS = [
    ("status",),
    ("status", "chat"),
    ("why", "chat"),
    ("pause", "chat", "--for", "1h"),
    ("resume", "chat"),
    ("support-bundle", "-o", "FILE"),
]
WITHOUT_SERVICES = [("top", "--once")]
KEYS = [("keys", "list"), ("keys", "create", "team"), ("keys", "revoke", "abc")]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Call:
    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            plugin([word.replace("FILE", str(tmp_path / "bundle")) for word in arguments])
        out, err = capsys.readouterr()
        code = left.value.code
        return (code if isinstance(code, int) else int(code is not None)), out, err

    return run


class NotFound(http.server.BaseHTTPRequestHandler):
    """An API server that has never heard of paceline."""

    def do_GET(self) -> None:
        self.send_response(404)
        self.end_headers()
        self.wfile.write(b"404 page not found\n")

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[str]:
    """The kubeconfig of a cluster without paceline's definitions."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), NotFound)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield kubeconfig(tmp_path, server.server_port)
    server.shutdown()
    server.server_close()
    thread.join()


def kubeconfig(folder: Path, port: int) -> str:
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {"token": "secret-token"}}],
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return str(path)


@pytest.mark.parametrize("command", [*COMMANDS, *WITHOUT_SERVICES, *KEYS])
def test_without_a_kubeconfig_the_option_and_the_variable_are_named(
    call: Call, tmp_path: Path, command: tuple[str, ...]
) -> None:
    code, out, err = call(*command, "--kubeconfig", str(tmp_path / "none"))
    assert (code, out) == (2, "")
    assert err == (
        f"error: --kubeconfig: {tmp_path / 'none'} does not exist; name the cluster's kubeconfig, or set KUBECONFIG\n"
    )


@pytest.mark.parametrize("command", [*COMMANDS, *WITHOUT_SERVICES, *KEYS])
def test_a_cluster_that_does_not_answer_is_one_line(call: Call, tmp_path: Path, command: tuple[str, ...]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        config = kubeconfig(tmp_path, taken.getsockname()[1])
        code, out, err = call(*command, "--kubeconfig", config)
    assert (code, out, len(err.splitlines())) == (1, "", 1)
    assert f"is the cluster of {config} up, and is it the one you mean?" in err
    assert "secret-token" not in err


@pytest.mark.parametrize("command", COMMANDS)
def test_a_cluster_without_paceline_says_how_to_install_it(call: Call, bare: str, command: tuple[str, ...]) -> None:
    code, out, err = call(*command, "--kubeconfig", bare)
    assert (code, out) == (1, "")
    assert err == (
        "error: this cluster does not know InferenceServices; install paceline first: "
        "helm install paceline charts/paceline -n paceline-system\n"
    )


def test_an_unknown_context_is_named(call: Call, bare: str) -> None:
    code, _, err = call("status", "--context", "nope", "--kubeconfig", bare)
    assert (code, len(err.splitlines())) == (2, 1)
    assert "nope" in err


@pytest.mark.parametrize(
    "command",
    [
        ("pause", "chat"),
        ("pause", "chat", "--for", "soon"),
        ("why", "Chat"),
        ("keys", "create", "Team"),
        ("status", "-n", "No"),
    ],
)
def test_bad_input_is_refused_before_anything_is_asked(call: Call, bare: str, command: tuple[str, ...]) -> None:
    code, out, err = call(*command, "--kubeconfig", bare)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert err.startswith("error: ")


def test_a_package_that_is_not_installed_is_named_with_the_command() -> None:
    program = "import sys; sys.modules['aiohttp'] = None; from paceline_cli.main import plugin; plugin(['status'])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: kubectl paceline: needs the package aiohttp: in a clone of paceline, pip install '.[cli,kubernetes]'\n"
    )


def test_a_command_of_local_mode_is_none_of_the_plugin(call: Call) -> None:
    assert call("up")[0] == 2
