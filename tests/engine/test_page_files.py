"""Pages as files: whole or a miss, found again by a later engine, bounded, one engine a folder."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.engine.peer import LIMIT_S
from tests.engine.waiting_for import until

from paceline_core.errors import InvalidInput
from paceline_workers.engine.page_files import PageFiles

PAGE = 1000
NAMES = [bytes([number]) * 16 for number in range(1, 9)]
Open = Callable[..., PageFiles]


def content(name: bytes) -> bytes:
    return (name * PAGE)[:PAGE]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """Opens files; closes what a test leaves open."""
    every: list[PageFiles] = []

    def make(fingerprint: bytes = b"model", limit: int = 100) -> PageFiles:
        files = PageFiles.open(tmp_path, fingerprint, PAGE, limit)
        assert files is not None
        every.append(files)
        return files

    yield make
    for files in every:
        files.close()


def read(files: PageFiles, *names: bytes) -> dict[bytes, bool]:
    """What became of each of these."""
    assert files.fetch(names) == set(names)
    found: dict[bytes, bool] = {}
    until(lambda: found.update(files.arrived()) or len(found) == len(names), LIMIT_S)
    return found


def written(tmp_path: Path) -> list[Path]:
    return sorted(path for path in tmp_path.glob("*.kv/*") if path.name != "lock")


def reopened(opened: Open, files: PageFiles) -> PageFiles:
    files.close()
    return opened()


def test_a_page_reads_back_as_it_was_written_also_by_a_later_engine(opened: Open, tmp_path: Path) -> None:
    files = opened()
    for name in NAMES[:3]:
        files.save(name, content(name))
    assert read(files, NAMES[0]) == {NAMES[0]: True}
    assert files.take(NAMES[0]) == content(NAMES[0])
    later = reopened(opened, files)
    assert sorted(later.known) == NAMES[:3]
    assert read(later, *NAMES[:3]) == dict.fromkeys(NAMES[:3], True)
    assert [bytes(later.take(name)) for name in NAMES[:3]] == [content(name) for name in NAMES[:3]]
    assert len(written(tmp_path)) == 3


@pytest.mark.parametrize("harm", ["flip", "cut", "grow", "empty", "gone", "magic"])
def test_a_file_that_is_not_whole_is_a_miss_and_removed(opened: Open, tmp_path: Path, harm: str) -> None:
    files = opened()
    files.save(NAMES[0], content(NAMES[0]))
    files = reopened(opened, files)
    (path,) = written(tmp_path)
    data = bytearray(path.read_bytes())
    match harm:
        case "flip":
            data[-1] ^= 1
        case "cut":
            data = data[:-1]
        case "grow":
            data += b"x"
        case "empty":
            data = bytearray()
        case "magic":
            data[0] ^= 1
    path.unlink() if harm == "gone" else path.write_bytes(data)
    assert read(files, NAMES[0]) == {NAMES[0]: False}
    with pytest.raises(KeyError):
        files.take(NAMES[0])
    assert written(tmp_path) == []


def test_what_was_left_half_written_or_has_another_size_is_removed_at_the_start(opened: Open, tmp_path: Path) -> None:
    files = opened()
    files.save(NAMES[0], content(NAMES[0]))
    files.close()
    (path,) = written(tmp_path)
    (path.parent / f"{NAMES[1].hex()}.new").write_bytes(b"half")
    (path.parent / NAMES[2].hex()).write_bytes(b"short")
    assert opened().known == [NAMES[0]]
    assert written(tmp_path) == [path]


def test_a_later_engine_with_less_room_keeps_the_youngest(opened: Open, tmp_path: Path) -> None:
    files = opened()
    for name in NAMES:
        files.save(name, content(name))
    files.close()
    assert opened(limit=3).known == NAMES[-3:]
    assert len(written(tmp_path)) == 3


def test_an_erased_page_is_gone_though_it_was_to_be_written(opened: Open, tmp_path: Path) -> None:
    files = opened()
    for name in NAMES:
        files.save(name, content(name))
        files.erase(name)
    files = reopened(opened, files)
    assert (files.known, written(tmp_path)) == ([], [])


def test_a_folder_belongs_to_one_engine_at_a_time(opened: Open, tmp_path: Path) -> None:
    files = opened()
    assert PageFiles.open(tmp_path, b"model", PAGE, 100) is None
    assert reopened(opened, files).known == []


def test_pages_of_another_model_are_never_found_and_removed_when_nobody_holds_them(
    opened: Open, tmp_path: Path
) -> None:
    old = opened(b"old")
    old.save(NAMES[0], content(NAMES[0]))
    assert opened(b"new").known == []
    assert len(list(tmp_path.iterdir())) == 2
    old.close()
    opened(b"newest")
    assert len(list(tmp_path.iterdir())) == 2
    assert written(tmp_path) == []


def test_other_things_in_the_folder_are_left_alone(opened: Open, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a").write_text("mine")
    opened()
    assert (tmp_path / "notes" / "a").read_text() == "mine"


def test_only_their_owner_may_read_pages(opened: Open, tmp_path: Path) -> None:
    files = opened()
    files.save(NAMES[0], content(NAMES[0]))
    files.close()
    (path,) = written(tmp_path)
    assert [item.stat().st_mode & 0o077 for item in (path, path.parent)] == [0, 0]


def test_a_page_that_cannot_be_written_is_a_miss_and_the_next_one_is_tried(opened: Open, tmp_path: Path) -> None:
    files = opened()
    (folder,) = tmp_path.glob("*.kv")
    (folder / f"{NAMES[0].hex()}.new").mkdir()
    files.save(NAMES[0], content(NAMES[0]))
    files.save(NAMES[1], content(NAMES[1]))
    until((folder / NAMES[1].hex()).exists, LIMIT_S)
    assert read(files, *NAMES[:2]) == {NAMES[0]: False, NAMES[1]: True}


def test_a_folder_that_cannot_be_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match=r"engine\.disk_path: .*file.* name another folder"):
        PageFiles.open(tmp_path / "file", b"model", PAGE, 100)
