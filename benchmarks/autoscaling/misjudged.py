"""A wrong engine model's cost: our policy on the first scored window of each cell, exactly.

Replicas report step times that are a fifth shorter or longer than what steps take, so the policy, gateways and
schedulers rely on a wrong speed, and have to see by what is served that it is. The right model's row is the matrix's.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product

from benchmarks.autoscaling.cells import cells
from benchmarks.autoscaling.exact import run_plan, service_plan
from benchmarks.autoscaling.fluid import fluid_plan, requests_of
from benchmarks.autoscaling.hindsight import SEED
from benchmarks.autoscaling.jobs import cell_of
from benchmarks.autoscaling.learned import learned
from benchmarks.autoscaling.store import FOLDER, CellFile, write
from benchmarks.simulator.cells import LEAD_S, scaled

from paceline_simulator.policies import SLO
from paceline_simulator.simulation import ServicePlan, Simulation

FILE = FOLDER / "misjudged.json"
FACTORS = (0.8, 1.2)


@dataclass(frozen=True, slots=True)
class Misjudged:
    """Attainment (0 to 1) and GPU-hours with a reported step time of `factor` times the real one, and with the real."""

    cell: str
    factor: float
    attainment: float
    gpu_hours: float
    own_attainment: float
    own_gpu_hours: float


def misjudge(task: tuple[str, float]) -> Misjudged:
    """A cell by name, and a factor."""
    name, factor = task
    window = cell_of(name).scored[0]
    requests = requests_of(window, SEED)
    made = service_plan(requests, learned(name).policy(LEAD_S), fluid_plan(window, requests).replicas)
    result = Simulation(run_plan(window, misjudged_plan(made, factor), SEED)).run()
    own = CellFile.load(name).result(SLO, window.name, SEED)
    return Misjudged(
        cell=name,
        factor=factor,
        attainment=round(result.attainment(), 5),
        gpu_hours=round(sum(result.gpu_s.values()) / 3600, 4),
        own_attainment=round(own["attainment"], 5),
        own_gpu_hours=round(own["gpu_hours"], 4),
    )


def misjudged_plan(plan: ServicePlan, factor: float) -> ServicePlan:
    """The same engine, but its replicas report step times of `factor` times the real ones."""
    (pool,) = plan.pools
    engine = replace(pool.engine, model=scaled(pool.engine.model, factor))
    return replace(plan, pools=(replace(pool, engine=engine),))


def tasks(names: Iterable[str]) -> list[tuple[str, float]]:
    return list(product(names, FACTORS))


def save(found: Sequence[Misjudged]) -> None:
    write(FILE, {"rows": list(map(asdict, found))})


def table(found: Sequence[Misjudged]) -> str:
    """Markdown: attainment / GPU time over that with the right model."""
    by_task = {(one.cell, one.factor): one for one in found}
    names = [name for name in cells() if (name, FACTORS[0]) in by_task]
    rows = ["| step times reported | " + " | ".join(names) + " |", "|---" * (1 + len(names)) + "|"]
    for factor in FACTORS:
        words = [_words(by_task[name, factor]) for name in names]
        rows.append(f"| {factor:g} times the real | " + " | ".join(words) + " |")
    return "\n".join(rows)


def _words(one: Misjudged) -> str:
    return f"{100 * one.attainment:.1f} / {one.gpu_hours / one.own_gpu_hours:.2f}"
