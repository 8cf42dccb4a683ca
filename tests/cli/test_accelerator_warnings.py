"""What `lint` and `up` say of accelerators that nothing here knows, and of fp8 where a GPU is not known to have it."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from paceline_cli.commands.lint import Findings, examine
from paceline_core.objects import ManifestError
from paceline_local.manifests import read_local_manifests

FP8 = {"kvCache": {"dtype": "fp8"}}
EMULATE = {"emulate": {"accelerator": "h100", "model": "llama-3.1-8b"}}


def service(accelerator: str, **spec: Any) -> dict[str, Any]:
    pools = [{"name": "main", "accelerator": accelerator}]
    return made("InferenceService", "chat", {"model": {"source": "builtin://demo"}, "pools": pools, **spec})


def profile(name: str, **teraflops: float) -> dict[str, Any]:
    return made("AcceleratorProfile", name, {"memory": "80G", "bandwidth": "2039G", "teraflops": teraflops})


def made(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "paceline.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def linted(tmp_path: Path, *documents: dict[str, Any]) -> Findings:
    file = tmp_path / "file.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    (found,) = examine([file]).values()
    assert found.faults == ()
    return found


def noted(tmp_path: Path, *documents: dict[str, Any]) -> list[str]:
    """Without what is noted of this machine, and without the place."""
    notes = [note for note in linted(tmp_path, *documents).notes if not note.startswith("not served")]
    return [note.partition("): ")[2] for note in notes]


def test_an_unknown_accelerator_is_told_with_the_known_ones(tmp_path: Path) -> None:
    (note,) = noted(tmp_path, service("h1000"))
    assert note == (
        "spec.pools[0].accelerator: 'h1000' is none of a100, b200, h100, h200, l4, l40s, rtx-4090, rtx-5090, "
        "rtx-6000-ada, rtx-pro-6000, mi300x, tpu-v5e, cpu, which are known here; did you mean h100?; "
        "write one of them, or add an AcceleratorProfile h1000"
    )


def test_a_run_refuses_an_accelerator_that_none_of_its_files_knows(tmp_path: Path) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(yaml.safe_dump(service("h1000")))
    with pytest.raises(ManifestError, match=r"spec.pools\[0\].accelerator: 'h1000' is none of a100, b200, h100, "):
        read_local_manifests([file], datetime(2026, 1, 31, 12, tzinfo=UTC))


def test_what_is_built_in_or_has_a_profile_here_or_is_emulated_is_not_noted(tmp_path: Path) -> None:
    assert noted(tmp_path, service("h200")) == noted(tmp_path, service("cpu")) == []
    assert noted(tmp_path, service("a30"), profile("a30", bf16=312.0)) == []
    assert noted(tmp_path, service("a30", engine=EMULATE)) == []


@pytest.mark.parametrize("known", [[profile("a30", bf16=312.0)], []])
def test_fp8_on_a_gpu_that_is_not_known_to_have_it_is_noted(tmp_path: Path, known: list[dict[str, Any]]) -> None:
    *_, last = noted(tmp_path, service("a30", engine=FP8), *known)
    assert last.startswith("spec.engine.kvCache.dtype: fp8 needs GPUs of compute capability 8.9 or later (Ada, Hopper)")
    assert last.endswith("nothing here says that a30 has fp8; write int8 or bf16 if it has not")


def test_fp8_in_one_of_several_pools_is_told_with_that_pools_name(tmp_path: Path) -> None:
    mixed = service("h100", engine=FP8)
    mixed["spec"]["pools"].append({"name": "old", "accelerator": "a30"})
    (note,) = noted(tmp_path, mixed, profile("a30", bf16=312.0))
    assert "(Ada, Hopper) in pool old, and nothing here says that a30 has fp8" in note


def test_a_gpu_that_is_not_known_to_have_bf16_is_noted(tmp_path: Path) -> None:
    (note,) = noted(tmp_path, service("t4"), profile("t4", fp16=65.0))
    assert note == (
        "spec.pools[0].accelerator: workers compute on GPUs of compute capability 8.0 or later (Ampere), which have "
        "bf16, and t4 has no teraflops.bf16; write it if the GPU has"
    )
    assert noted(tmp_path, service("t4", engine=EMULATE), profile("t4", fp16=65.0)) == []


def test_a_device_of_another_vendor_is_refused_where_a_pool_would_really_compute_on_it(tmp_path: Path) -> None:
    mine, file = profile("mi300x", bf16=1307.0), tmp_path / "file.yaml"
    mine["spec"]["resourceName"] = "amd.com/gpu"
    assert linted(tmp_path, mine).notes == linted(tmp_path, service("mi300x", engine=EMULATE), mine).notes == ()
    file.write_text(yaml.safe_dump_all([service("mi300x"), mine]))
    (found,) = examine([file]).values()
    said = (
        "spec.pools[0].accelerator: workers compute on NVIDIA GPUs and CPUs in this version, and mi300x is "
        "amd.com/gpu; name an NVIDIA GPU or cpu, or emulate with spec.engine.emulate"
    )
    assert found.unserved == found.faults
    assert found.faults[0].endswith(said)
    with pytest.raises(ManifestError, match=r"mi300x is amd\.com/gpu"):
        read_local_manifests([file], datetime(2026, 1, 31, 12, tzinfo=UTC))


def test_fp8_on_a_gpu_that_has_it_is_not_noted(tmp_path: Path) -> None:
    assert noted(tmp_path, service("h100", engine=FP8)) == []
    assert noted(tmp_path, service("mine", engine=FP8), profile("mine", bf16=312.0, fp8=624.0)) == []


def test_who_lacks_a_gpu_is_told_once_that_a_name_is_unknown_and_never_of_one_with_a_profile(tmp_path: Path) -> None:
    for documents, times in ((service("h1000"),), 1), ((service("mine"), profile("mine", bf16=312.0)), 0):
        notes = linted(tmp_path, *documents).notes
        assert sum("is none of" in note for note in notes) == times


def test_services_of_one_name_in_two_files_have_notes_of_their_own(tmp_path: Path) -> None:
    files = [tmp_path / "gpu.yaml", tmp_path / "cpu.yaml"]
    for file, accelerator in zip(files, ("h1000", "cpu"), strict=True):
        file.write_text(yaml.safe_dump(service(accelerator)))
    gpu, cpu = examine(files).values()
    assert any("'h1000' is none of" in note for note in gpu.notes)
    assert cpu.notes == ()


def test_a_profile_that_takes_the_price_of_a_built_in_accelerator_away_is_noted(tmp_path: Path) -> None:
    (note,) = noted(tmp_path, service("h100"), profile("h100", bf16=989.0))
    assert note == "replaces all of the built-in h100, its price too; write dollarsPerHour, or it counts as free"
    priced = profile("h100", bf16=989.0)
    priced["spec"]["dollarsPerHour"] = "2.50"
    assert noted(tmp_path, service("h100"), priced) == []
