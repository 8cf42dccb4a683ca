"""Catalogue, profiles, prices and cold starts."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline_core.errors import InvalidInput
from paceline_core.objects import InferenceService, read, resolve
from paceline_core.objects.accelerator import AcceleratorSpec, TeraflopsPerType
from paceline_planner.accelerators import CATALOGUE, H100, H200
from paceline_planner.coldstart import Stage, stages
from paceline_planner.hardware import Dtype, from_profile, replica_price
from paceline_planner.service_devices import pool_price
from paceline_planner.shapes import LLAMA_3_1_8B, LLAMA_3_3_70B, ModelShape


def test_an_h200_reaches_the_rates_that_were_measured_on_one() -> None:
    assert H200.read_rate == pytest.approx(4.3e12, rel=1e-3)
    assert 0.45 <= H200.compute_rate(Dtype.BF16) / H200.flops[Dtype.BF16] <= 0.6


def test_a_profile_becomes_an_accelerator_with_the_numbers_of_its_data_sheet() -> None:
    spec = AcceleratorSpec.model_validate(
        {
            "memory": "80G",
            "bandwidth": "3350G",
            "teraflops": {"bf16": 989, "fp8": 1979},
            "links": {"device": "450G"},
            "dollarsPerHour": "2.50",
            "watts": 700,
        }
    )
    mine = from_profile("mine", spec)
    assert (mine.name, mine.memory, mine.bandwidth, mine.link) == ("mine", 80_000_000_000, 3.35e12, 4.5e11)
    assert mine.flops == {Dtype.BF16: 989e12, Dtype.FP8: 1979e12}
    assert (mine.price, mine.watts, mine.efficiency) == (Decimal("2.50"), 700, H100.efficiency)


def test_a_profile_without_price_and_link_leaves_them_unknown() -> None:
    spec = AcceleratorSpec.model_validate({"memory": "24G", "bandwidth": "300G", "teraflops": {"bf16": 121}})
    plain = from_profile("plain", spec)
    assert (plain.link, plain.price, replica_price(plain, 2)) == (0.0, None, None)


def test_a_replica_costs_its_devices() -> None:
    assert replica_price(H100, 4) == Decimal("15.72")
    assert replica_price(H200) == Decimal("4.98")


def test_a_pools_price_is_that_of_its_devices_or_of_those_it_emulates() -> None:
    manifest: dict[str, Any] = {
        "apiVersion": "paceline.dev/v1alpha1", "kind": "InferenceService", "metadata": {"name": "chat"},
        "spec": {"model": {"source": "builtin://demo"}, "pools": [{"name": "main", "accelerator": "cpu"}]},
    }  # fmt: skip
    plain = resolve(read(InferenceService, manifest))
    emulated = {"engine": {"emulate": {"accelerator": "h100", "model": "llama-3.1-8b"}}}
    posing = resolve(read(InferenceService, {**manifest, "spec": {**manifest["spec"], **emulated}}))
    assert pool_price(plain, plain.pools[0], CATALOGUE.get) == Decimal("0.10")
    assert pool_price(posing, posing.pools[0], CATALOGUE.get) == Decimal("3.93")
    assert pool_price(plain, plain.pools[0], lambda _: None) is None


def test_a_cold_start_loads_the_weights_at_the_speed_of_the_disk() -> None:
    load = stages(LLAMA_3_1_8B, H100)[2]
    assert load == Stage("load", 8_030_261_248 * 2 / 2e9)
    assert stages(LLAMA_3_3_70B, H100, devices=4)[2].seconds == pytest.approx(141.1 / 2 / 4, rel=1e-3)


def test_an_override_sets_the_sum_and_keeps_order_and_proportions() -> None:
    planned, shorter = stages(LLAMA_3_1_8B, H100), stages(LLAMA_3_1_8B, H100, 10.0)
    assert [stage.name for stage in shorter] == ["schedule", "pull", "load", "warm"]
    factor = 10.0 / sum(stage.seconds for stage in planned)
    assert [stage.seconds for stage in shorter] == pytest.approx([stage.seconds * factor for stage in planned])


@given(total=st.floats(0, 3600), model=st.sampled_from([LLAMA_3_1_8B, LLAMA_3_3_70B]))
def test_the_stages_add_up_to_the_override(total: float, model: ModelShape) -> None:
    assert sum(stage.seconds for stage in stages(model, H100, total)) == pytest.approx(total)


def test_a_negative_cold_start_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"coldStart: -1\.0 seconds is negative"):
        stages(LLAMA_3_1_8B, H100, -1.0)


def test_a_profile_takes_nothing_of_the_built_in_accelerator_whose_name_it_has() -> None:
    spec = AcceleratorSpec(memory="8G", bandwidth="1G", teraflops=TeraflopsPerType(bf16=1.0))
    for name in CATALOGUE:
        assert replace(from_profile(name, spec), name="other") == from_profile("other", spec)
    assert from_profile("h100", spec).price is None
