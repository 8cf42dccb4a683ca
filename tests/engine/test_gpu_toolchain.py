"""What Triton would fail on in the middle of a load is refused before it, with what to do about it."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from paceline_core.errors import InvalidInput
from paceline_workers.engine.backends.gpu.toolchain import HEADERS, allocate, cache_folder, check, headers


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"TRITON_CACHE_DIR": str(tmp_path / "cache/triton"), "HOME": str(tmp_path)}


def gcc(name: str) -> str | None:
    return "/usr/bin/gcc" if name == "gcc" else None


def nothing(name: str) -> str | None:
    return None


def refusal(environ: Mapping[str, str], which: object = gcc, headers: Path = HEADERS) -> str:
    with pytest.raises(InvalidInput) as refused:
        check(environ, which, headers)  # type: ignore[arg-type]
    return str(refused.value)


def test_a_machine_with_a_compiler_and_a_folder_to_write_passes_and_has_the_folder(environ: dict[str, str]) -> None:
    check(environ, gcc)
    check({**environ, "CC": "/opt/cc"}, nothing)
    assert list(cache_folder(environ).iterdir()) == []


def test_without_a_compiler_or_headers_the_fix_is_to_install_them(environ: dict[str, str], tmp_path: Path) -> None:
    assert refusal(environ, nothing).startswith("engine.device: kernels need a C compiler, gcc or clang; install one")
    assert refusal(environ, gcc, tmp_path).startswith(f"engine.device: kernels need Python's headers in {tmp_path}; ")


def test_a_cache_that_cannot_be_written_or_run_from_is_named_with_its_variable(environ: dict[str, str]) -> None:
    Path(environ["TRITON_CACHE_DIR"]).parent.write_text("a file")
    assert refusal(environ).startswith(f"TRITON_CACHE_DIR: {environ['TRITON_CACHE_DIR']} cannot be written (")
    assert refusal({"TRITON_CACHE_DIR": "/proc/self"}).startswith("TRITON_CACHE_DIR: /proc/self cannot be written (")


@pytest.mark.parametrize("value", ["1", "true", "ON"])
def test_a_gpus_kernels_are_never_interpreted_by_accident(environ: dict[str, str], value: str) -> None:
    said = refusal({**environ, "TRITON_INTERPRET": value})
    assert said == "TRITON_INTERPRET: is set, so that kernels would be interpreted on the CPU; unset it"
    check({**environ, "TRITON_INTERPRET": "0"}, gcc)


def test_the_cache_lies_where_triton_looks_for_it() -> None:
    assert cache_folder({"TRITON_CACHE_DIR": "/cache/triton", "TRITON_HOME": "/x"}) == Path("/cache/triton")
    assert cache_folder({"TRITON_HOME": "/x", "HOME": "/home/a"}) == Path("/x/.triton/cache")
    assert cache_folder({"HOME": "/home/a"}) == Path("/home/a/.triton/cache")


def test_headers_are_looked_for_where_triton_does_under_debians_own_python_too() -> None:
    assert headers("posix_local") == headers("posix_prefix") == HEADERS


@pytest.mark.parametrize("name", ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
def test_torchs_segments_grow_unless_somebody_has_set_its_allocator(name: str) -> None:
    plain: dict[str, str] = {}
    allocate(plain)
    assert plain == {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
    own = {name: "max_split_size_mb:64"}
    allocate(own)
    assert own == {name: "max_split_size_mb:64"}
