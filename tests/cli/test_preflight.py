"""A pool of GPUs is refused before anything is started where no driver of NVIDIA GPUs is, and only there."""

from pathlib import Path
from typing import Any

from paceline_core.objects import InferenceService, ResolvedService, resolve, validate
from paceline_local.preflight import missing_on_host

POOLS = [{"name": "main", "accelerator": "cpu"}, {"name": "gpus", "accelerator": "l4"}]


def service(**spec: Any) -> ResolvedService:
    document = {
        "apiVersion": "paceline.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": "chat"},
        "spec": {"model": {"source": "builtin://demo"}, "pools": POOLS, **spec},
    }
    found = validate(document)
    assert isinstance(found, InferenceService)
    return resolve(found)


def test_without_a_driver_each_pool_of_gpus_is_named_and_with_one_none(tmp_path: Path) -> None:
    nothing, driver = tmp_path / "absent", tmp_path / "nvidiactl"
    driver.touch()
    (problem,) = missing_on_host(service(), (nothing,))
    assert str(problem).startswith("spec.pools[1].accelerator: this machine has no NVIDIA GPU for 'l4'; write cpu, or")
    assert list(missing_on_host(service(), (nothing, driver))) == []


def test_who_asks_for_no_gpu_needs_no_driver(tmp_path: Path) -> None:
    emulated = service(engine={"emulate": {"accelerator": "h100", "model": "llama-3.1-8b"}})
    for asked in (service(pools=POOLS[:1]), emulated):
        assert list(missing_on_host(asked, (tmp_path / "absent",))) == []
