"""Rows of a study, made by hand."""

from paceline_core.objects.resolved import Target
from paceline_core.registry.enums import RequestClass
from paceline_simulator.study_rows import Interval, Percentiles, ScaleDecision, StudyRow

PROMISE = (
    Target(RequestClass.INTERACTIVE, "ttft", 0.95, 1.0),
    Target(RequestClass.INTERACTIVE, "tpot", 0.95, 0.1),
)


def row(policy: str, seed: int = 0, attainment: float = 0.97, hours: float = 2.0, **fields: object) -> StudyRow:
    """Three intervals of 10 s, and a decision at 12 s; TPOT is always in time."""
    known: dict[str, object] = {
        "policy": policy,
        "seed": seed,
        "digest": f"{policy} {seed}",
        "version": "1.0",
        "score": (10.0, 30.0),
        "attainment": attainment,
        "targets": {"ttft_p95": attainment, "tpot_p95": 1.0},
        "gpu_hours": hours,
        "dollars": 4.0 * hours,
        "mean_replicas": 2.0,
        "starts": 1,
        "offered": 200,
        "shed": 2,
        "failed": 1,
        "ttft": Percentiles(0.2, 0.8, 1.5),
        "tpot": Percentiles(0.01, 0.02, 0.03),
        "timeline": tuple(Interval(10.0 * n, 3.0, 1.5, 2, 1, n % 2, 0, 4 * n, 2) for n in range(3)),
        "decisions": (ScaleDecision(12.0, {"main": 1}, {"main": 2}, "demand", "none", "1→2: demand <needs> 2"),),
    }
    return StudyRow(**{**known, **fields})  # type: ignore[arg-type]
