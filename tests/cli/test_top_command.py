"""`paceline top` and `kubectl paceline top` against canned gateways: what is shown, what is said where none answers."""

import asyncio
import http.server
import io
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console
from tests.cli.test_top_frame import cls, look, tenant, worker

from paceline_cli.main import app, plugin
from paceline_cli.ui.frame import Frame
from paceline_cli.ui.gateway_poll import PAGES, ROWS, GatewaySnapshot, Reading, UnreachableGateway
from paceline_cli.ui.gateway_poll import look as ask
from paceline_cli.ui.refresh import RefreshInterval, show, until_interrupted
from paceline_cli.ui.top_outputs import JsonTopOutput, PlainTopOutput, ScreenTopOutput
from paceline_core.clock import ManualClock
from paceline_core.errors import Forbidden, Unreachable
from paceline_local.rundir import RunRecord, write_record

Call = Callable[..., tuple[int, str, str]]
Answers = dict[str, Any]
PODS = "/api/v1/namespaces/paceline-system/pods"
SERVICES = "/apis/paceline.dev/v1alpha1/namespaces/default/inferenceservices"
QUICK = ("--once", "--interval", "0.2")


def views(told: GatewaySnapshot) -> Answers:
    """What a gateway answers at its admin port."""
    pages = {"services": told.services, "queues": told.queues, "workers": told.workers, "tenants": told.tenants}
    return {f"/v1/{name}": page.model_dump(mode="json") for name, page in pages.items()}


TOLD = views(look(0, cls(arrivals=3, in_flight=1), workers=[worker()], tenants=[tenant()]))


def pod(name: str, phase: str = "Running") -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "paceline-system"}, "status": {"phase": phase}}


@pytest.fixture
def answers() -> Answers:
    """By path: an object, or a status; what is not there is not found."""
    return {}


@pytest.fixture
def asked() -> list[str]:
    """Paths with their queries, in order."""
    return []


@pytest.fixture
def port(answers: Answers, asked: list[str]) -> Iterator[int]:
    class Canned(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            found = answers.get(self.path.partition("?")[0], 404)
            status = found if isinstance(found, int) else 200
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps({"kind": "Status", "message": "no"} if status != 200 else found).encode())

        def log_message(self, *words: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Canned)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    def run(program: Callable[[list[str]], None], *arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            program(list(arguments))
        out, err = capsys.readouterr()
        code = left.value.code
        return (code if isinstance(code, int) else int(code is not None)), out, err

    return run


@pytest.fixture
def local(call: Call, port: int, tmp_path: Path) -> Call:
    """`paceline top` of a run whose gateway is the canned one."""
    (tmp_path / "run").mkdir()
    write_record(tmp_path / "run", RunRecord(1, "none.sock", gateway=f"http://127.0.0.1:{port}"))
    return lambda *words: call(app, "top", *words, "--state", str(tmp_path))


@pytest.fixture
def cluster(call: Call, port: int, tmp_path: Path) -> Call:
    """`kubectl paceline top` on a canned API server."""
    config = tmp_path / "kubeconfig"
    document = {
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    config.write_text(yaml.safe_dump(document))
    return lambda *words: call(plugin, "top", *words, "--kubeconfig", str(config))


def test_a_local_run_is_one_picture_and_the_end(answers: Answers, local: Call) -> None:
    answers.update(TOLD)
    code, out, err = local(*QUICK)
    assert (code, err) == (0, "")
    assert out.startswith("1 gateway: gateway; over the last ")
    assert all(word in out for word in ("default/chat", "interactive", "team", "w0", "SERVICE", "TENANT", "WORKER"))


def test_for_programs_it_is_one_document(answers: Answers, local: Call) -> None:
    answers.update(TOLD)
    code, out, _ = local(*QUICK, "--json")
    seen = json.loads(out)
    assert (code, seen["v"], seen["gateways"], seen["silent"]) == (0, 1, ["gateway"], [])
    assert (seen["classes"][0]["in_flight"], seen["workers"][0]["slots"], seen["tenants"][0]["tenant"]) == (
        1,
        8,
        "team",
    )


def test_a_gateway_of_another_version_is_said_to_be_one(answers: Answers, local: Call) -> None:
    answers.update(TOLD | {"/v1/queues": TOLD["/v1/queues"] | {"v": 2}})
    code, out, err = local(*QUICK)
    assert (code, out, len(err.splitlines())) == (1, "", 1)
    assert "is it of another version?" in err


def test_a_gateway_that_is_down_is_one_line_with_the_fix(call: Call, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        write_record(tmp_path / "run", RunRecord(1, "none.sock", gateway=url))
        code, out, err = call(app, "top", "--once", "--state", str(tmp_path))
    assert (code, out) == (1, "")
    assert err == "error: no gateway answers (gateway: it is not up; `paceline status` shows what is)\n"


def test_without_a_run_it_says_how_to_start_one(call: Call, tmp_path: Path) -> None:
    code, _, err = call(app, "top", "--state", str(tmp_path))
    assert (code, err.startswith("error: nothing runs in ")) == (1, True)


def test_a_clusters_gateways_are_merged_and_the_silent_one_is_named(
    answers: Answers, asked: list[str], cluster: Call
) -> None:
    answers[PODS] = {"items": [pod("gw-b"), pod("gw-a"), pod("gw-c"), pod("gw-new", "Pending")], "metadata": {}}
    for name in ("gw-a", "gw-b"):
        answers.update({f"{PODS}/{name}:8081/proxy{path}": page for path, page in TOLD.items()})
    code, out, _ = cluster(*QUICK)
    assert code == 0
    assert out.startswith("2 gateways: gw-a, gw-b; over the last ")
    assert "gw-c does not answer: " in out
    assert "gw-new" not in out
    (row,) = (line.split() for line in out.splitlines() if "w0" in line)
    assert row[3] == "2/8"
    assert any("/proxy/v1/tenants?limit=200&busy=true" in path for path in asked)


def test_one_service_is_asked_for_by_its_name(answers: Answers, asked: list[str], cluster: Call) -> None:
    answers[f"{SERVICES}/chat"] = {"metadata": {"name": "chat", "namespace": "default"}}
    answers[PODS] = {"items": [pod("gw-a")], "metadata": {}}
    answers.update({f"{PODS}/gw-a:8081/proxy{path}": page for path, page in TOLD.items()})
    assert cluster(*QUICK, "--service", "chat")[0] == 0
    assert any("workers?limit=200&service=default/chat" in path for path in asked)


def test_a_service_that_is_not_there_is_named_before_any_gateway_is_asked(
    answers: Answers, asked: list[str], cluster: Call
) -> None:
    answers[SERVICES] = {"items": [{"metadata": {"name": "chat", "namespace": "default"}}], "metadata": {}}
    code, out, err = cluster(*QUICK, "--service", "caht")
    assert (code, out) == (1, "")
    assert err == "error: there is no InferenceService caht in namespace default; did you mean chat?\n"
    assert not any(path.startswith(PODS) for path in asked)


@pytest.mark.parametrize("found", [{"items": [], "metadata": {}}, 403])
def test_where_no_gateway_can_be_asked_the_way_out_is_told(answers: Answers, cluster: Call, found: Any) -> None:
    answers[PODS] = found
    code, out, err = cluster(*QUICK)
    assert (code, out, len(err.splitlines())) == (1, "", 1)
    assert "--system-namespace" in err or "administrator" in err


def test_bad_options_are_bad_input(local: Call) -> None:
    assert local("--interval", "0")[0] == 2
    assert local("--interval", "soon")[0] == 2


class Told:
    """Takes frames; after so many the user has seen enough."""

    def __init__(self, enough: int) -> None:
        self.frames: list[Frame] = []
        self.closed = False
        self._enough = enough

    def show(self, frame: Frame) -> None:
        self.frames.append(frame)
        if len(self.frames) == self._enough:
            raise KeyboardInterrupt

    def close(self) -> None:
        self.closed = True


def watch(readings: list[Reading], pace: RefreshInterval, output: Told) -> None:
    left = iter(readings)

    async def read() -> Reading:
        return next(left)

    with until_interrupted(output):
        asyncio.run(show(read, pace, output, ManualClock()))


GONE = [UnreachableGateway("g0", "it is not up")]


def test_a_gateway_that_goes_away_is_named_and_waited_for() -> None:
    output = Told(3)
    watch(
        [[look(0, cls())], [look(2, cls())], GONE, [look(6, cls(arrivals=4))]], RefreshInterval(2.0, once=False), output
    )
    assert [len(frame.gateways) for frame in output.frames] == [1, 0, 1]
    assert output.closed


@pytest.mark.parametrize("readings", [[GONE], [[look(0, cls())], GONE]])
def test_a_script_hears_of_it_when_there_is_nothing_to_show(readings: list[Reading]) -> None:
    output = Told(1)
    with pytest.raises(Unreachable, match=r"g0: it is not up"):
        watch(readings, RefreshInterval(2.0, once=True), output)
    assert (output.frames, output.closed) == ([], True)


def test_a_right_that_is_missing_is_told_as_one_and_not_as_a_gateway_that_is_down() -> None:
    refused = UnreachableGateway("g0", 'cannot get resource "pods/proxy"', forbidden=True)
    with pytest.raises(Forbidden, match="pods/proxy"):
        watch([[refused]], RefreshInterval(2.0, once=True), Told(1))


def test_a_gateway_that_hangs_is_given_up() -> None:
    async def hang(*_: object) -> bytes:
        await asyncio.Event().wait()
        return b""

    found = asyncio.run(ask("g0", hang, "", ManualClock(), limit_s=0.01))
    assert found == UnreachableGateway("g0", "no answer within 0.01 s")


@pytest.mark.parametrize(("there", "seen"), [(450, 450), (1500, PAGES * ROWS)])
def test_long_lists_are_read_page_by_page_up_to_a_bound(there: int, seen: int) -> None:
    every = [worker(f"w{number:04}") for number in range(there)]

    async def paged(path: str, query: Mapping[str, str]) -> bytes:
        page = TOLD[path]
        if path == "/v1/workers":
            behind = [each for each in every if f"{each['service']} {each['worker']}" > query.get("after", "")]
            part = behind[: int(query["limit"])]
            page = page | {"workers": part, "truncated": len(behind) > len(part)}
        return json.dumps(page).encode()

    found = asyncio.run(ask("g0", paged, "", ManualClock()))
    assert isinstance(found, GatewaySnapshot)
    assert [each.worker for each in found.workers.workers] == [each["worker"] for each in every[:seen]]
    assert found.workers.truncated is (seen < there)


def test_a_terminal_too_narrow_for_tables_says_how_wide_it_must_be() -> None:
    told = Told(1)
    watch([[look(at, cls(arrivals=1))] for at in range(2)], RefreshInterval(1.0, once=True), told)
    for width, hint in ((60, True), (80, False)):
        text = io.StringIO()
        drawn = ScreenTopOutput(Console(file=text, force_terminal=True, width=width))
        drawn.show(told.frames[0])
        drawn.close()
        assert ("60 columns cut the tables; make it 80 or more" in text.getvalue()) is hint


def test_frames_that_follow_each_other_are_lines_of_json_tables_or_one_screen() -> None:
    frames: list[str] = []
    for output in (JsonTopOutput(alone=False, write=frames.append), PlainTopOutput(frames.append)):
        watch_two = Told(2)
        watch([[look(at, cls(arrivals=1))] for at in range(3)], RefreshInterval(1.0, once=False), watch_two)
        for frame in watch_two.frames:
            output.show(frame)
        output.close()
    assert [len(text.splitlines()) == 1 for text in frames] == [True, True, False, False]
    assert frames[3].startswith("\n1 gateway: g0")
    screen = io.StringIO()
    drawn = ScreenTopOutput(Console(file=screen, force_terminal=True, width=160))
    for frame in watch_two.frames:
        drawn.show(frame)
    drawn.close()
    assert screen.getvalue().count("default/chat") >= 2
    assert "\x1b[?25h" in screen.getvalue()
