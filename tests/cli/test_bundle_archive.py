import json
import stat
import tarfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from paceline_cli.commands.kube.support_bundle import FILE_LIMIT, Archive
from paceline_core.errors import InvalidInput

MADE = datetime(2026, 1, 31, 12, tzinfo=UTC)


def archive(total: int = 10 * FILE_LIMIT) -> Archive:
    return Archive({"paceline": "1"}, MADE, total)


def test_the_index_names_what_is_there_and_what_is_missing(tmp_path: Path) -> None:
    made = archive()
    made.add("objects/a.json", "[]")
    made.missing("logs/x.log", "forbidden")
    made.write(tmp_path / "b.tar.gz")
    with tarfile.open(tmp_path / "b.tar.gz") as tar:
        names = tar.getnames()
        index = tar.extractfile("b/index.json")
        assert index is not None
        found = json.load(index)
    assert names == ["b/index.json", "b/objects/a.json"]
    assert found["entries"] == {"logs/x.log": {"missing": "forbidden"}, "objects/a.json": {"bytes": 2}}
    assert made.gaps == 1


def test_a_file_over_its_limit_is_cut_and_the_index_says_so() -> None:
    made = archive()
    made.add("logs/x.log", "x" * (FILE_LIMIT + 5))
    assert made.index()["entries"]["logs/x.log"] == {"bytes": FILE_LIMIT, "cut": f"of {FILE_LIMIT + 5} bytes"}


def test_all_files_together_stay_under_the_limit() -> None:
    made = archive(total=10)
    made.add("a", "x" * 8)
    made.add("b", "x" * 8)
    made.add("c", "x" * 8)
    assert [entry["bytes"] for entry in made.index()["entries"].values()] == [8, 2, 0]


def test_a_bundle_is_the_owner_s_to_read_and_never_written_over_a_file(tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    archive().write(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(InvalidInput, match=r"--output: .* cannot be made: File exists; name another file"):
        archive().write(path)
    with pytest.raises(InvalidInput, match="No such file"):
        archive().write(tmp_path / "none" / "b.tar.gz")
