"""Files of a ledger: one pair a service, each complete by itself, all of them bounded."""

import contextlib
import errno
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.autoscaler.factories import NOW, goal, observation
from tests.autoscaler.ledgers import VOLUME, entries_in, entry_of

from paceline_autoscaler.output.ledger_entry import LedgerEntry, encode
from paceline_autoscaler.output.ledger_files import LedgerFiles, read
from paceline_core.errors import InvalidInput

SIZE = len(encode(entry_of(observation()))[1]) + 1
"""Bytes of the line of an entry here, give or take a few."""


def entry(number: int, service: str = "default/chat", **spec: float) -> LedgerEntry:
    return entry_of(observation(now=NOW + number, goal=goal(service=service, **spec)))


def append(files: LedgerFiles, *entries: LedgerEntry) -> None:
    for each in entries:
        files.append(each.service, *encode(each))


def used(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir())


@contextlib.contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """No file of this process may grow beyond `size`: the kernel writes what fits, as on a full volume."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_each_service_has_a_file_of_its_own_and_one_older(tmp_path: Path) -> None:
    files = LedgerFiles(tmp_path, VOLUME, file_limit=3 * SIZE)
    append(files, *(entry(n) for n in range(4)), entry(9, "prod/chat"))
    assert names(tmp_path) == ["default.chat.jsonl", "default.chat.jsonl.1", "prod.chat.jsonl"]
    assert [each.at - NOW for each in files.newest("default/chat")] == [3, 2, 1, 0]
    assert [each.at - NOW for each in files.newest("prod/chat")] == [9]


def test_a_file_has_each_spec_once_and_after_a_rotation_again(tmp_path: Path) -> None:
    files = LedgerFiles(tmp_path, VOLUME, file_limit=6 * SIZE)
    append(files, *(entry(n, drain_limit_s=30.0 + (n % 2)) for n in range(7)))
    current, older = tmp_path / "default.chat.jsonl", tmp_path / "default.chat.jsonl.1"
    assert older.read_bytes().count(b'{"record":"spec"') == 2
    assert current.read_bytes().startswith(b'{"record":')
    assert [each.at - NOW for path in (older, current) for each in entries_in(path)] == list(range(7))


def test_only_one_older_file_is_kept(tmp_path: Path) -> None:
    files = LedgerFiles(tmp_path, VOLUME, file_limit=3 * SIZE)
    append(files, *(entry(n) for n in range(30)))
    assert used(tmp_path) <= 6 * SIZE
    assert [each.at - NOW for each in files.newest("default/chat")][:3] == [29, 28, 27]


def test_a_new_process_appends_and_its_entries_can_be_read(tmp_path: Path) -> None:
    append(LedgerFiles(tmp_path, VOLUME), entry(0))
    append(LedgerFiles(tmp_path, VOLUME), entry(1))
    assert [each.at - NOW for each in entries_in(tmp_path / "default.chat.jsonl")] == [0, 1]


def test_after_another_process_wrote_to_a_shared_directory_the_files_are_measured_again(tmp_path: Path) -> None:
    one, other = (LedgerFiles(tmp_path, VOLUME, file_limit=5 * SIZE) for _ in range(2))
    append(one, entry(0))
    append(other, entry(1), entry(2), entry(3))
    append(one, entry(4))
    assert [each.at - NOW for each in one.newest("default/chat")] == [4, 3, 2, 1, 0]
    for path in tmp_path.iterdir():
        assert entries_in(path)


def test_files_that_a_user_removed_begin_anew(tmp_path: Path) -> None:
    files = LedgerFiles(tmp_path, VOLUME)
    append(files, entry(0))
    (tmp_path / "default.chat.jsonl").unlink()
    append(files, entry(1))
    assert [each.at - NOW for each in entries_in(tmp_path / "default.chat.jsonl")] == [1]


def test_only_the_line_of_a_killed_process_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "default.chat.jsonl"
    append(LedgerFiles(tmp_path, VOLUME), entry(0))
    with path.open("ab") as file:
        file.write(b'{"kind":"chan')
    files = LedgerFiles(tmp_path, VOLUME)
    append(files, entry(1))
    assert [each.at - NOW for each in files.newest("default/chat")] == [1, 0]
    (damaged,) = (found for found in read(path) if isinstance(found, InvalidInput))
    assert str(damaged).startswith(f"{path}:4: is not an entry of a ledger: ")


def test_a_deleted_service_has_no_files(tmp_path: Path) -> None:
    files = LedgerFiles(tmp_path, VOLUME, file_limit=3 * SIZE)
    append(files, *(entry(n) for n in range(4)), entry(4, "prod/chat"))
    files.delete("default/chat")
    files.delete("default/never-seen")
    assert names(tmp_path) == ["prod.chat.jsonl"]


def test_files_of_services_that_were_deleted_before_the_start_are_removed_and_no_others(tmp_path: Path) -> None:
    append(LedgerFiles(tmp_path, VOLUME), *(entry(n, f"default/{name}") for n, name in enumerate("abc")))
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "notes.txt").touch()
    LedgerFiles(tmp_path, VOLUME).delete_others({"default/b"})
    assert names(tmp_path) == ["default.b.jsonl", "lost+found", "notes.txt"]


@settings(deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=60), st.integers(8, 40))
@example([0] * 7 + [1] * 6 + [2, 3], 8)  # current files alone leave new services no room
def test_all_files_together_are_bounded_and_every_service_keeps_its_newest_entry(
    tmp_path_factory: pytest.TempPathFactory, services: list[int], room: int
) -> None:
    directory = tmp_path_factory.mktemp("ledger")
    limit = room * SIZE * 2
    files = LedgerFiles(directory, limit)
    for number, name in enumerate(services):
        append(files, entry(number, f"default/s{name}"))
        assert used(directory) <= limit
        assert next(files.newest(f"default/s{name}")).at == NOW + number
    for path in directory.iterdir():
        assert entries_in(path)


def test_without_room_nothing_is_written_and_the_error_says_so(tmp_path: Path) -> None:
    files = LedgerFiles(tmp_path, SIZE)
    with pytest.raises(OSError, match=f"the {SIZE} bytes that are allowed") as caught:
        append(files, entry(0))
    assert caught.value.errno == errno.ENOSPC
    assert names(tmp_path) == []


def test_a_volume_without_space_keeps_whole_lines(tmp_path: Path) -> None:
    files = LedgerFiles(tmp_path, VOLUME)
    append(files, entry(0))
    path = tmp_path / "default.chat.jsonl"
    size = path.stat().st_size
    with file_size_limit(size + 10), pytest.raises(OSError, match=r"space|large"):
        append(files, entry(1))
    assert path.stat().st_size == size
    append(files, entry(2))
    assert [each.at - NOW for each in entries_in(path)] == [0, 2]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="none: cannot be read"):
        read(tmp_path / "none")
