"""The directory of one run: `<state>/run`, whose logs stay until the next run; `<state>` keeps what outlives runs.

The kernel holds the lock on the state directory itself for as long as the process lives: a killed supervisor leaves
none behind. A shell waits for the supervisor's end and removes its keys and its prompts' pages; if it could not (the
whole machine died, or every process of the user), the next run removes them. Log files are bounded.
"""

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from paceline_core.errors import Conflict, NotFound

LIMIT = 32 << 20
TRIMMED_BYTES = 1 << 20


def trim(path: Path, limit: int = LIMIT, size: int = TRIMMED_BYTES) -> None:
    """Cut a file over `limit` bytes down to its last `kept`; lines written meanwhile may be lost.

    The writer has the file open for appending, so it continues at the new end.
    """
    if path.stat().st_size <= limit:
        return
    end = _last(path, size)
    with path.open("wb") as file:
        file.write(end)


def tail(path: Path, lines: int = 12) -> list[str]:
    if not path.exists():
        return []
    written = _last(path, 64 << 10).decode(errors="replace").splitlines()
    return [line for line in written if line.strip()][-lines:]


def unwritable(path: Path) -> str:
    """Why a log cannot be written any more; empty if it can. It writes an empty line to find out."""
    try:
        with path.open("ab", buffering=0) as file:
            file.write(b"\n")
    except OSError as error:
        return f"{path} cannot be written: {error.strerror}"
    return ""


def _last(path: Path, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - size))
        return file.read(size)


SOCKET_PATH_LIMIT = 100  # AF_UNIX allows 108 bytes on Linux, 104 elsewhere
SHORTEST_PLACE = Path("/tmp")  # noqa: S108 - for a private directory, where TMPDIR is too deep for a socket
PRIVATE_DIR = 0o700
PRIVATE_FILE = 0o600
_CLEAR = """
read -r _
for each in * .[!.]*; do
    [ "$each" = logs ] || rm -rf -- "$each"
done
[ -z "$1" ] || rm -rf -- "$1"
"""


@dataclass(frozen=True, slots=True)
class RunRecord:
    pid: int
    socket: str
    endpoint: str = ""
    gateway: str = ""
    autoscaler: str = ""


@dataclass(frozen=True, slots=True)
class RunDir:
    root: Path
    socket: Path

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def secrets(self) -> Path:
        """Signing keys, readable only for this user."""
        return self.root / "secrets"

    @property
    def trust_bundle(self) -> Path:
        return self.root / "jwks.json"

    @property
    def parts(self) -> Path:
        return self.root / "parts"

    def signing_key(self, signer: str) -> Path:
        return self.secrets / f"{signer}.key"

    def home(self, name: str) -> Path:
        path = self.parts / name
        path.mkdir(mode=PRIVATE_DIR, exist_ok=True)
        return path

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def forget(self, name: str) -> None:
        """Remove the files of a process that will not restart; its log stays, because it may explain a failure."""
        shutil.rmtree(self.parts / name, ignore_errors=True)


@contextlib.contextmanager
def run_dir(state: Path) -> Iterator[RunDir]:
    """Lock the state directory for this process; raises Conflict if another run holds it."""
    state.mkdir(mode=PRIVATE_DIR, parents=True, exist_ok=True)
    with _lock(state):
        root = state / "run"
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(mode=PRIVATE_DIR)
        for scratch in state.glob(".local.key.*"):  # an unfinished key file of a killed run
            scratch.unlink(missing_ok=True)
        with _cleared(root), _socket_path(root) as socket, _survived(root, socket):
            found = RunDir(root, socket)
            for path in (found.logs, found.secrets, found.parts):
                path.mkdir(mode=PRIVATE_DIR)
            yield found


def write_private(path: Path, text: str | bytes) -> None:
    """Write a file that only this user can read; readers see the old content or the new, nothing between.

    Raises OSError naming the file, and then leaves none behind.
    """
    data = text.encode() if isinstance(text, str) else text
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_FILE), "wb") as file:
            file.write(data)
        scratch.replace(path)
    except OSError as error:
        scratch.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_record(root: Path, record: RunRecord) -> None:
    write_private(root / "run.json", json.dumps(asdict(record)))


def read_record(state: Path) -> RunRecord:
    """The run in a state directory; raises NotFound if nothing runs there."""
    try:
        record = RunRecord(**json.loads((state / "run" / "run.json").read_text()))
    except (OSError, ValueError, TypeError):
        logs = state / "run" / "logs"
        last = f"; the last run's logs are in {logs}" if logs.is_dir() else ""
        raise NotFound(
            f"nothing runs in {state}; start it with `paceline up`, or name another one with --state{last}"
        ) from None
    return record


@contextlib.contextmanager
def _cleared(root: Path) -> Iterator[None]:
    """Leave nothing behind except the logs, each within its bound."""
    try:
        yield
    finally:
        for path in root.iterdir():
            if path.name != "logs":
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
        logs = list((root / "logs").iterdir())
        for log in logs:
            trim(log)
        if not logs:
            shutil.rmtree(root, ignore_errors=True)


@contextlib.contextmanager
def _survived(root: Path, socket: Path) -> Iterator[None]:
    """Start a process in its own session that removes what a killed supervisor leaves, once our end of a pipe closes.

    Its working directory is the folder itself, so that it never touches the next run's folder of the same name.
    """
    outside = "" if socket.parent == root.resolve() else str(socket.parent)
    argv = ("/bin/sh", "-c", _CLEAR, "paceline-clear", outside)
    env = {"PATH": "/usr/bin:/bin"}
    with subprocess.Popen(argv, cwd=root, env=env, stdin=subprocess.PIPE, start_new_session=True) as watcher:  # noqa: S603 - ours
        try:
            yield
        finally:
            watcher.kill()


@contextlib.contextmanager
def _lock(state: Path) -> Iterator[None]:
    handle = os.open(state, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        holder = ""
        with contextlib.suppress(NotFound):
            holder = f" (process {read_record(state).pid})"
        raise Conflict(
            f"{state} belongs to a run that is still up{holder}; stop it, or choose another --state"
        ) from None
    finally:
        os.close(handle)


@contextlib.contextmanager
def _socket_path(root: Path) -> Iterator[Path]:
    """Beside the other files, or in a short directory of its own if the path would be too long for a socket."""
    path = root.resolve() / "api.sock"
    if _fits(path):
        yield path
        return
    usual = Path(tempfile.gettempdir())
    place = usual if _fits(usual / "paceline-12345678" / path.name) else SHORTEST_PLACE
    with tempfile.TemporaryDirectory(prefix="paceline-", dir=place) as short:
        yield Path(short) / path.name


def _fits(path: Path) -> bool:
    return len(os.fsencode(path)) <= SOCKET_PATH_LIMIT
