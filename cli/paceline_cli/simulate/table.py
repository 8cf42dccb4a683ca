"""A study's result on a terminal: one line a policy, and by which promise it is judged. Pure.

A file of its own: the command acts, this only renders.
"""

from collections.abc import Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from paceline_core.units import counted
from paceline_simulator.comparison import TIE, Comparison, PolicySummary, describe_promise

_COLUMNS = ("in time", "holds", "replicas", "GPU-hours", "$", "vs static", "worst (seed)")


def render(comparison: Comparison) -> RenderableType:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("policy", no_wrap=True)
    for name in _COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    for policy in comparison.policies:
        table.add_row(policy.policy, *_cells(comparison, policy), style="" if policy.holds else "dim")
    judged = f"promise of {comparison.service}: {describe_promise(comparison.promise)}"
    how = (
        "in time: share of the offered requests that met all targets; holds: each target is met often enough by itself"
    )
    scored = counted(max(policy.typical.offered for policy in comparison.policies), "request")
    tie = f"; a cost within {TIE:.0%} of {comparison.reference.policy}'s is a tie" if comparison.reference else ""
    runs = f"a run scores {scored}; values are medians of the seeds{tie}"
    return Group(table, Text(judged), Text(how), Text(runs), Text(comparison.headline(), style="bold"))


def _cells(comparison: Comparison, policy: PolicySummary) -> Iterator[str]:
    yield f"{policy.attainment:.2%}"
    yield "yes" if policy.holds else "no"
    yield f"{policy.replicas:.1f}"
    yield f"{policy.gpu_hours:.2f}"
    yield "-" if policy.dollars is None else f"{policy.dollars:.2f}"
    yield comparison.cost_against_reference(policy) or "-"
    yield f"{policy.worst.attainment:.2%} ({policy.worst.seed})"


def document(comparison: Comparison) -> dict[str, Any]:
    """The same as JSON."""
    return {
        "service": comparison.service,
        "promise": [
            {"target": target.name, "seconds": target.seconds, "objective": target.objective}
            for target in comparison.promise
        ],
        "headline": comparison.headline(),
        "policies": [
            {
                "policy": policy.policy,
                "attainment": policy.attainment,
                "holds": policy.holds,
                "replicas": policy.replicas,
                "gpu_hours": policy.gpu_hours,
                "dollars": policy.dollars,
                "against_static": comparison.against_reference(policy),
                "worst": {"seed": policy.worst.seed, "attainment": policy.worst.attainment},
            }
            for policy in comparison.policies
        ],
    }
