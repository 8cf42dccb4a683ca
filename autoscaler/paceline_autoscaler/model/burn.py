"""How fast error budgets burn, by the verdicts of the attainment's window. Pure."""

import re

from paceline_autoscaler.types import Observation, Role, SloCounts
from paceline_core.registry.enums import QueryResult

_QUANTILE = re.compile(r"_p([1-9][0-9])$")
_MIN_JUDGED = 10


def worst_burn(observation: Observation, role: Role | None) -> float | None:
    """The fastest-burning budget among the targets that this role's pools must meet; None if nothing was judged."""
    attainment = observation.attainment
    if attainment is None or attainment.result is not QueryResult.VALUE:
        return None
    burns = [
        burn_of(counts)
        for counts in attainment.verdicts
        if role not in ("prefill", "decode")
        or counts.slo.startswith("e2e")
        or counts.slo.startswith("ttft") == (role == "prefill")
    ]
    return max((burn for burn in burns if burn is not None), default=None)


def burn_of(counts: SloCounts) -> float | None:
    """The share of misses over the allowed share; None for too few requests, or a target without a latency quantile."""
    judged = counts.good + counts.bad
    quantile = _QUANTILE.search(counts.slo)
    if quantile is None or judged < _MIN_JUDGED:
        return None
    return counts.bad / judged / (1 - int(quantile[1]) / 100)
