"""The table of autoscalers: medians over seeds, the worst window, cost over the oracle, and rows that are void."""

from pathlib import Path

import pytest
from benchmarks.autoscaling import store
from benchmarks.autoscaling.report import cell_report, cost_interval, table
from benchmarks.autoscaling.store import CellFile, RunRow, Tuned


def row(policy: str, attainment: float, hours: float, seed: int = 1, window: str = "a", digest: str = "d") -> RunRow:
    blocks = [{"offered": 10, "attained": 9, "gpu_s": hours * share} for share in (1000.0, 1200.0, 1400.0)]
    result = {"attainment": attainment, "gpu_hours": hours, "blocks": blocks}
    return RunRow(policy, "x", digest, window, seed, result)


def file_of(*rows: RunRow, **tuned: Tuned) -> CellFile:
    return CellFile("conv", tuned, {each.key: each for each in rows})


def test_a_policy_is_judged_by_the_median_seed_of_its_worst_window() -> None:
    seeds = [row("slo", attained, 2.0, seed) for seed, attained in enumerate((0.999, 0.992, 0.97), 1)]
    found = cell_report(file_of(*seeds, row("slo", 0.985, 3.0, window="b")), lambda _: True).outcomes["slo"]
    assert (found.attainment, found.worst, found.gpu_hours, found.seeds, found.holds) == (0.985, 0.97, 5.0, 1, False)


def test_the_oracle_is_the_cheaper_of_its_run_and_the_static_pool_in_hindsight() -> None:
    rows = (row("oracle", 0.995, 4.0), row("static in hindsight", 0.995, 5.0), row("slo", 0.995, 6.0))
    found = cell_report(file_of(*rows, keda=Tuned("", "")), lambda _: True)
    assert (found.oracle_hours, found.not_offered) == (4.0, ("keda",))
    assert found.room == pytest.approx(0.2)
    cheaper = cell_report(file_of(row("oracle", 0.98, 3.0), *rows[1:]), lambda _: True)
    assert (cheaper.oracle_hours, cheaper.room) == (5.0, 0.0)
    shown = table([found, cheaper], ["slo", "keda"])
    assert "| slo | 99.5 / 1.50 | 99.5 / 1.20 | 2/2 |" in shown
    assert "| keda | not offered |  | 0/2 |" in shown
    assert "| room | 20 % | 0 % (flat) |  |" in shown


def test_rows_of_other_decisions_do_not_count() -> None:
    found = cell_report(file_of(row("slo", 0.9, 1.0, digest="old"), row("slo", 1.0, 2.0, 2)), lambda r: r.digest == "d")
    assert (found.outcomes["slo"].attainment, found.outcomes["slo"].gpu_hours) == (1.0, 2.0)


def test_costs_are_compared_block_by_block_of_the_seeds_that_both_have() -> None:
    ours = [row("slo", 1.0, 1.1, 1), row("slo", 1.0, 9.0, 2)]
    found = cost_interval(ours, [row("static", 1.0, 1.0, 1)])
    assert found is not None
    assert found == pytest.approx((1.1, 1.1, 1.1))
    assert cost_interval(ours, [row("static", 1.0, 1.0, 3)]) is None


def test_a_cell_goes_on_where_it_was_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "FOLDER", tmp_path)
    file = CellFile.load("conv")
    file.tuned["keda"] = Tuned("running=16", "d", {"running=16": (0.99, 3.0)})
    file.add(row("slo", 0.99, 1.0))
    again = CellFile.load("conv")
    assert (again.tuned, again.runs) == (file.tuned, file.runs)
    assert again.has(("slo", "x", "a", 1), "d")
    assert not again.has(("slo", "x", "a", 1), "other")
    assert not again.has(("slo", "x", "a", 2), "d")
