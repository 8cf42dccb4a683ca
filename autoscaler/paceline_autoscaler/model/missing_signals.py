"""Which signals an observation lacks, so that no later step treats silence as zero. Pure."""

from paceline_autoscaler.state import LearnedState
from paceline_autoscaler.types import MissingSignal, Observation
from paceline_core.registry.enums import QueryResult

SILENCE_LIMIT_S = 600.0
"""After this time a ready worker without load reports holds its pool no longer, if others of it report."""


def missing_signals(observation: Observation) -> tuple[MissingSignal, ...]:
    found = {
        MissingSignal.GATEWAYS: observation.demand.heard < max(observation.demand.expected, 1),
        MissingSignal.ENDPOINTS: observation.endpoints_lost,
        MissingSignal.LOAD: any(pool.silent for pool in observation.pools),
        MissingSignal.OBJECTS: observation.objects_lost,
        MissingSignal.ATTAINMENT: _attainment_missing(observation),
        MissingSignal.STATE: observation.state_unread,
    }
    return tuple(signal for signal, missing in found.items() if missing)


def unreported_pools(observation: Observation, state: LearnedState) -> frozenset[str]:
    since = dict(state.silent)
    recent = observation.now - SILENCE_LIMIT_S
    return frozenset(
        pool.name
        for pool in observation.pools
        if pool.silent and (not pool.loads or any(since.get(name, observation.now) > recent for name in pool.silent))
    )


def _attainment_missing(observation: Observation) -> bool:
    """Empty and NaN are expected if every gateway reports no requests: there was nothing to judge."""
    attainment, classes = observation.attainment, observation.demand.classes
    if not observation.goal.targets:
        return False
    if attainment is None:
        return True
    if attainment.result in {QueryResult.EMPTY, QueryResult.NAN}:
        return any(cls.in_flight or cls.queued or any(flow.arrivals for flow in cls.flows) for cls in classes)
    return attainment.result is not QueryResult.VALUE
