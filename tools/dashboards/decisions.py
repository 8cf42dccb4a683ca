"""Marks on the time axis where the autoscaler changed what it wants."""

from paceline_core.registry.metrics import SERVICE
from tools.dashboards.panels import Annotation
from tools.dashboards.scoped import select

_POOL = ", ".join((*SERVICE, "pool"))


def decisions() -> tuple[Annotation, ...]:
    """Pools that grew, pools that shrank, and the reasons of the decisions that were no hold."""
    desired = f"{select('paceline_autoscaler_replicas', {'state': 'desired'})}[1m]"
    made = select("paceline_autoscaler_decisions_total", {"direction": "!hold"})
    # A reason seen for the first time has no earlier sample for increase() to start from.
    new = f"(increase({made}[1m]) > 0) or ({made} unless {made} offset 1m)"
    why = f"sum by ({', '.join(SERVICE)}, direction, reason) ({new})"
    place = "{{pisvc_namespace}}/{{pisvc}}"
    return (
        Annotation("Up", f"max by ({_POOL}) (delta({desired})) > 0", f"{place} {{{{pool}}}} grows", "orange"),
        Annotation("Down", f"max by ({_POOL}) (delta({desired})) < 0", f"{place} {{{{pool}}}} shrinks", "blue"),
        Annotation("Why", f"{why} > 0", f"{place} {{{{direction}}}}: {{{{reason}}}}", "purple"),
    )
