"""How much memory an engine may take, from files as Linux writes them."""

from pathlib import Path

import psutil

from paceline_workers.engine.sizing import free_memory

GIB = 1 << 30


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)


def machine(proc: Path, group: str = "/") -> Path:
    write(proc, meminfo="MemTotal:       33554432 kB\nMemAvailable:   16777216 kB\n")
    write(proc / "self", cgroup=f"0::{group}\n")
    return proc


def test_a_machine_without_limits_gives_what_it_has_available(tmp_path: Path) -> None:
    write(tmp_path / "groups/app", memory_max="max\n", memory_current="1000\n")
    assert free_memory(machine(tmp_path / "proc", "/app"), tmp_path / "groups") == 16 * GIB


def test_a_cgroups_limit_counts_less_what_is_used_but_for_page_cache(tmp_path: Path) -> None:
    files = {"memory_max": f"{4 * GIB}\n", "memory_current": f"{3 * GIB}\n"}
    write(tmp_path / "groups", **files, memory_stat=f"anon 1\ninactive_file {GIB}\n")
    assert free_memory(machine(tmp_path / "proc"), tmp_path / "groups") == 2 * GIB


def test_a_limit_of_a_group_above_binds_too(tmp_path: Path) -> None:
    write(tmp_path / "groups/a", memory_max=f"{GIB}\n", memory_current=f"{2 * GIB}\n")
    write(tmp_path / "groups/a/b", memory_max="max\n", memory_current="0\n")
    assert free_memory(machine(tmp_path / "proc", "/a/b"), tmp_path / "groups") == 0


def test_where_nobody_says_nothing_is_known(tmp_path: Path) -> None:
    assert free_memory(tmp_path / "proc", tmp_path / "groups") is None


def test_this_machine_says_something() -> None:
    free = free_memory()
    assert free is not None
    assert 0 < free < psutil.virtual_memory().total
