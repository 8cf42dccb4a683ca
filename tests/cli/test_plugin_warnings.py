"""`kubectl paceline` against an API server of canned answers: what it says beside what was asked for."""

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from paceline_cli.main import plugin

Call = Callable[..., tuple[int, str, str]]
SERVICES = "/apis/paceline.dev/v1alpha1/namespaces/default/inferenceservices"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/paceline-system/leases/"
SECRETS = "/api/v1/namespaces/paceline-system-tenant-keys/secrets"
TENANTS = "/apis/paceline.dev/v1alpha1/namespaces/paceline-system/tenants"
NAMESPACE, KEYS = (f"/api/v1/namespaces/paceline-system{end}" for end in ("", "-tenant-keys"))
USAGE = {"month": "2026-01", "gateways": [{"id": "g", "requests": 3, "time": "2026-01-31T00:00:00Z"}]}
SERVICE = {
    "metadata": {"name": "chat", "namespace": "default", "creationTimestamp": "2026-01-31T11:15:00Z"},
    "spec": {"model": {"source": "builtin://demo"}, "pools": [{"name": "main", "accelerator": "cpu"}]},
}
OLD = {"spec": {"holderIdentity": "", "renewTime": "2026-01-31T11:57:00.000000Z"}}
FORBIDDEN = 403
Answers = dict[str, Any]


@pytest.fixture
def answers() -> Answers:
    """By path: an object, a list of objects, or a status; what is not there is not found."""
    return {}


@pytest.fixture
def posted() -> list[str]:
    """The paths of what was made."""
    return []


@pytest.fixture
def call(answers: Answers, posted: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Iterator[Call]:
    class Canned(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = answers.get(self.path.partition("?")[0], 404)
            status = found if isinstance(found, int) else 200
            body: Any = {"items": found, "metadata": {}} if isinstance(found, list) else found
            if status != 200:
                body = {"kind": "Status", "code": status, "message": "no"}
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def do_POST(self) -> None:
            posted.append(self.path.partition("?")[0])
            made = json.loads(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(201)
            self.end_headers()
            self.wfile.write(json.dumps(made).encode())

        def log_message(self, *words: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Canned)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    config = tmp_path / "kubeconfig"
    config.write_text(
        yaml.safe_dump(
            {
                "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
                "users": [{"name": "u", "user": {}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        )
    )

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            plugin([*arguments, "--kubeconfig", str(config)])
        out, err = capsys.readouterr()
        code = left.value.code
        return (code if isinstance(code, int) else int(code is not None)), out, err

    yield run
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("arguments", [("status",), ("status", "chat"), ("status", "-o", "json")])
def test_a_status_that_nobody_keeps_current_says_so_beside_it(
    answers: Answers, call: Call, arguments: tuple[str, ...]
) -> None:
    answers |= {SERVICES: [SERVICE], f"{SERVICES}/chat": SERVICE, f"{LEASES}paceline-operator": OLD}
    answers[f"{LEASES}paceline-autoscaler"] = FORBIDDEN
    code, out, err = call(*arguments)
    assert (code, "chat" in out) == (0, True)
    (line,) = err.splitlines()
    assert line.startswith("note: no operator holds its Lease since ")
    assert line.endswith("; statuses may be old")


def test_leases_that_may_not_be_read_are_not_spoken_of(answers: Answers, call: Call) -> None:
    answers |= {SERVICES: [SERVICE], f"{LEASES}paceline-operator": FORBIDDEN, f"{LEASES}paceline-autoscaler": FORBIDDEN}
    assert call("status")[::2] == (0, "")


def test_keys_of_a_namespace_that_is_not_there_are_an_error_that_names_it(answers: Answers, call: Call) -> None:
    answers["/api/v1/namespaces/nosuch-tenant-keys/secrets"] = answers["/api/v1/namespaces/lost/secrets"] = []
    for option, name in (("--system-namespace", "nosuch-tenant-keys"), ("--key-namespace", "lost")):
        code, out, err = call("keys", "list", option, name.removesuffix("-tenant-keys"))
        assert (code, out) == (1, "")
        assert f"namespace {name} " in err
        assert "--system-namespace" in err
        assert "--key-namespace" in err


@pytest.mark.parametrize(
    ("tenants", "said"),
    [
        ([], "there are no keys in paceline-system-tenant-keys, nor any Tenants in paceline-system\n"),
        ([{"metadata": {"name": "team"}}], "there are no keys in paceline-system-tenant-keys\n"),
        (FORBIDDEN, "there are no keys in paceline-system-tenant-keys\n"),
    ],
)
def test_no_keys_are_said_and_no_tenants_too(answers: Answers, call: Call, tenants: Any, said: str) -> None:
    answers |= {SECRETS: [], KEYS: {"metadata": {"name": "paceline-system-tenant-keys"}}, TENANTS: tenants}
    assert call("keys", "list") == (0, "", said)


@pytest.mark.parametrize(
    ("tenants", "hint"),
    [
        ([{"metadata": {"name": "red"}}], "; did you mean red?"),
        ([{"metadata": {"name": "team"}}, {"metadata": {"name": "blue"}}], "; the Tenants are blue, team"),
        ([], ", nor any other"),
        (FORBIDDEN, ""),
    ],
)
def test_a_key_for_a_tenant_that_is_not_there_is_refused_and_not_made(
    answers: Answers, call: Call, posted: list[str], tenants: Any, hint: str
) -> None:
    answers |= {KEYS: {"metadata": {"name": "paceline-system-tenant-keys"}}, TENANTS: tenants}
    fix = "apply it first, since a key without its Tenant opens nothing"
    told = f"error: there is no Tenant rde in paceline-system{hint}; {fix}\n"
    assert call("keys", "create", "rde") == (1, "", told)
    assert posted == []


def test_a_key_is_made_for_a_tenant_that_is_there_and_by_whoever_may_not_look(
    answers: Answers, call: Call, posted: list[str]
) -> None:
    for told in ({"metadata": {"name": "team"}}, FORBIDDEN):
        answers[f"{TENANTS}/team"] = told
        code, out, err = call("keys", "create", "team")
        assert (code, out[:3], err) == (0, "pl_", "")
    assert posted == [SECRETS, SECRETS]


@pytest.mark.parametrize("tenants", [[], 404])
def test_use_in_a_namespace_that_is_not_there_is_an_error_that_names_it(
    call: Call, answers: Answers, tenants: Any
) -> None:
    answers[TENANTS.replace("paceline-system", "typo")] = tenants
    assert call("usage", "--system-namespace", "typo") == (
        1,
        "",
        "error: there is no paceline in namespace typo; choose another --system-namespace\n",
    )


@pytest.mark.parametrize("namespace", [{"metadata": {"name": "paceline-system"}}, FORBIDDEN])
def test_use_where_there_are_no_tenants_is_none(call: Call, answers: Answers, namespace: Any) -> None:
    answers |= {TENANTS: [], NAMESPACE: namespace}
    code, out, err = call(
        "usage",
    )
    assert (code, len(out.splitlines()), err) == (0, 1, "there are no Tenants in paceline-system\n")


def test_use_of_a_tenant_is_a_row(call: Call, answers: Answers) -> None:
    answers[TENANTS] = [{"metadata": {"name": "team"}, "status": {"usage": USAGE}}]
    code, out, _ = call("usage", "--month", "2026-01")
    assert (code, out.splitlines()[1].split(",")[:3]) == (0, ["2026-01", "team", "3"])
