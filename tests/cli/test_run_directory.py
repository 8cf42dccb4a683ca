import os
import socket
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import psutil
import pytest

from paceline_core.errors import Conflict, NotFound, Unreachable
from paceline_local.rundir import (
    LIMIT,
    TRIMMED_BYTES,
    RunRecord,
    read_record,
    run_dir,
    tail,
    trim,
    write_private,
    write_record,
)


def permissions(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_everything_of_a_run_is_private(tmp_path: Path) -> None:
    with run_dir(tmp_path / "state") as run:
        write_private(run.secrets / "gateway.key", b"x" * 32)
        assert permissions(tmp_path / "state") == 0o700
        assert [permissions(path) for path in (run.root, run.logs, run.secrets, run.home("gateway"))] == [0o700] * 4
        assert permissions(run.secrets / "gateway.key") == 0o600


@pytest.mark.parametrize("end", [None, Unreachable, KeyboardInterrupt])
def test_of_a_run_nothing_is_left_but_its_logs_however_it_ended(
    tmp_path: Path, end: type[BaseException] | None
) -> None:
    with pytest.raises(end) if end else nullcontext(), run_dir(tmp_path) as run:
        (run.home("gateway") / "gateway.yaml").write_text("x")
        write_private(run.secrets / "gateway.key", b"x")
        run.log("gateway").write_text("why")
        if end:
            raise end("it failed")
    assert [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()] == [
        Path("run/logs/gateway.log")
    ]


def test_the_next_run_begins_without_the_logs_of_the_last(tmp_path: Path) -> None:
    with run_dir(tmp_path) as run:
        run.log("gateway").write_text("why")
    with run_dir(tmp_path) as run:
        assert list(run.logs.iterdir()) == []


def test_logs_that_stay_are_cut_to_their_bound(tmp_path: Path) -> None:
    with run_dir(tmp_path) as run, run.log("gateway").open("wb") as log:
        log.truncate(LIMIT + 1)
    assert run.log("gateway").stat().st_size == TRIMMED_BYTES


def test_a_run_without_logs_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(Unreachable), run_dir(tmp_path):
        raise Unreachable("it failed")
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_run_left_is_cleared(tmp_path: Path) -> None:
    (tmp_path / "run" / "parts").mkdir(parents=True)
    (tmp_path / "run" / "run.json").write_text("{}")
    with run_dir(tmp_path) as run:
        assert not (run.root / "run.json").exists()


def test_a_second_run_in_the_same_directory_is_refused_with_the_first_ones_process(tmp_path: Path) -> None:
    with run_dir(tmp_path) as run:
        write_record(run.root, RunRecord(os.getpid(), str(run.socket)))
        with pytest.raises(Conflict, match=rf"still up \(process {os.getpid()}\).*--state"), run_dir(tmp_path):
            pass
    with run_dir(tmp_path):
        pass


def test_a_run_is_found_by_its_record(tmp_path: Path) -> None:
    record = RunRecord(7, "/x/api.sock", "http://127.0.0.1:8000", "http://127.0.0.1:1", "http://127.0.0.1:2")
    with run_dir(tmp_path) as run:
        write_record(run.root, record)
        assert read_record(tmp_path) == record
    with pytest.raises(NotFound, match="paceline up"):
        read_record(tmp_path)


def test_where_nothing_runs_the_last_runs_logs_are_named(tmp_path: Path) -> None:
    with run_dir(tmp_path) as run:
        run.log("gateway").write_text("why")
    with pytest.raises(NotFound, match=f"the last run's logs are in {run.logs}"):
        read_record(tmp_path)


def test_the_socket_moves_where_its_path_fits(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    with run_dir(deep) as run:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(run.socket))
        place = run.socket.parent
        assert permissions(place) == 0o700
    assert not place.exists()


BINDS = """
import socket, sys
from pathlib import Path
from paceline_local.rundir import run_dir
with run_dir(Path(sys.argv[1])) as run, socket.socket(socket.AF_UNIX) as listener:
    listener.bind(str(run.socket))
    print(run.socket.parent)
"""


def test_it_fits_where_temporary_files_lie_deep_too(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    environment = os.environ | {"TMPDIR": str(deep)}
    ran = subprocess.run(
        [sys.executable, "-c", BINDS, str(deep)], env=environment, capture_output=True, text=True, check=False
    )
    assert ran.stderr == ""
    assert not Path(ran.stdout.strip()).exists()


def test_a_log_is_cut_down_to_its_end(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    with log.open("ab") as writer:
        for number in range(1000):
            writer.write(f"line {number}\n".encode())
        writer.flush()
        trim(log, limit=5000, size=100)
        writer.write(b"after\n")
    assert log.stat().st_size < 200
    assert tail(log, 2) == ["line 999", "after"]


def test_a_short_log_is_left_alone(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("one\ntwo\n")
    trim(log)
    assert tail(log) == ["one", "two"]
    assert tail(tmp_path / "missing.log") == []


KILLED = """
import sys, time
from pathlib import Path
from paceline_local.rundir import run_dir, write_private
with run_dir(Path(sys.argv[1])) as run:
    write_private(run.secrets / "gateway.key", b"secret")
    (run.home("chat-main-1") / "pages").write_text("prompts")
    write_private(run.root / ".hidden", "x")
    run.log("gateway").write_text("why")
    print(run.socket.parent, flush=True)
    time.sleep(600)
"""


@pytest.mark.real
def test_a_killed_supervisor_leaves_nothing_but_its_logs(tmp_path: Path) -> None:
    state = tmp_path / ("x" * 120)  # too deep for a socket, so that this has a folder of its own
    with subprocess.Popen([sys.executable, "-c", KILLED, str(state)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        beside = Path(process.stdout.readline().strip())
        (watcher,) = psutil.Process(process.pid).children()
        assert (state / "run/secrets/gateway.key").exists()
        process.kill()
    watcher.wait(30)
    assert [path.name for path in (state / "run").iterdir()] == ["logs"]
    assert (state / "run/logs/gateway.log").read_text() == "why"
    assert not beside.exists()


@pytest.mark.real
def test_who_clears_up_after_a_killed_run_never_touches_the_next_one(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        (watcher,) = psutil.Process(process.pid).children()
        watcher.suspend()
        process.kill()
    with run_dir(tmp_path) as run:
        write_private(run.secrets / "gateway.key", b"new")
        watcher.resume()
        watcher.wait(30)
        assert (run.secrets / "gateway.key").read_bytes() == b"new"


def test_the_next_run_removes_a_key_that_a_killed_one_was_writing(tmp_path: Path) -> None:
    (tmp_path / ".local.key.4711").write_text("secret")
    (tmp_path / "local.key").write_text("kept")
    with run_dir(tmp_path):
        assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["local.key"]
