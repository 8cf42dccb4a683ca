"""Policies by name: `slo` is the production policy, the others are baselines; NAME:NUMBER sets a baseline's target."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from math import isfinite
from types import MappingProxyType
from typing import Any

from paceline_autoscaler.policies.constant import Constant
from paceline_autoscaler.policies.replica_policy import (
    Baseline,
    BaselinePolicy,
    ProductionPolicy,
    ReplicaPolicy,
    having_started,
)
from paceline_autoscaler.policies.token_rate import TokenRate
from paceline_core.errors import InvalidInput
from paceline_simulator.baselines.aibrix import Aibrix
from paceline_simulator.baselines.dynamo import Dynamo
from paceline_simulator.baselines.hpa import hpa_concurrency, hpa_kv, hpa_queue
from paceline_simulator.baselines.keda import Keda, keda
from paceline_simulator.baselines.kpa import Kpa
from paceline_simulator.baselines.ray_serve import RayServe
from paceline_simulator.baselines.slo_recipe import SloRecipe
from paceline_simulator.baselines.wva import Wva

SLO, STATIC = "slo", "static"
BASELINES: Mapping[str, Baseline[Any]] = {
    "hpa-queue": hpa_queue(),
    "hpa-kv": hpa_kv(),
    "hpa-concurrency": hpa_concurrency(),
    "keda": Keda(),
    "kpa": Kpa(),
    "aibrix": Aibrix(),
    "wva": Wva(),
    "dynamo-throughput": Dynamo(),
    "dynamo-load": Dynamo(load=True),
    "ray": RayServe(),
    "slo-recipe": SloRecipe(),
    "token-rate": TokenRate(),
}
"""As their sources deliver them."""
NAMES = (SLO, f"{STATIC}:N", *BASELINES)
_TARGETS: Mapping[str, Callable[[float], Baseline[Any]]] = {
    "hpa-queue": hpa_queue,
    "hpa-kv": hpa_kv,
    "hpa-concurrency": hpa_concurrency,
    "keda": lambda running: keda(running=running),
    "kpa": lambda concurrency: Kpa(concurrency=concurrency),
    "aibrix": lambda target: Aibrix(target=target),
    "ray": lambda target: RayServe(target=target),
    "slo-recipe": lambda up: replace(SloRecipe(), up=up, down=up * 0.4 / 0.55),
    "token-rate": lambda tokens_per_s: TokenRate(tokens_per_s=tokens_per_s),
}


def policy_of(text: str, starts_s: Mapping[str, float] = MappingProxyType({})) -> ReplicaPolicy:
    """A fresh policy, such as `slo`, `static:4`, `keda` or `hpa-queue:8`. Raises InvalidInput.

    `starts_s`: the seconds of a start by pool, as far as an autoscaler that learns them has seen one.
    """
    name, colon, number = text.strip().partition(":")
    if name == STATIC:
        return BaselinePolicy(Constant(_replicas(text, number)))
    if name != SLO and name not in BASELINES:
        raise InvalidInput("policy", f"is {text!r}; use {_meant(name)}")
    if colon and name not in _TARGETS:
        raise InvalidInput("policy", f"is {text!r}, but {name} takes no number; write {name}")
    if name == SLO:
        return ProductionPolicy(state=having_started(starts_s))
    return BaselinePolicy(_TARGETS[name](_target(text, number)) if colon else BASELINES[name])


def static_replicas(policy: ReplicaPolicy) -> int | None:
    """The replicas of each pool under a static policy; None for any other."""
    baseline = policy.baseline if isinstance(policy, BaselinePolicy) else None
    return baseline.replicas if isinstance(baseline, Constant) else None


def _meant(name: str) -> str:
    longer = [policy for policy in BASELINES if name and policy.startswith(name)]
    return " or ".join(longer or get_close_matches(name, (SLO, *BASELINES), 1)) or f"one of {', '.join(NAMES)}"


def _replicas(text: str, number: str) -> int:
    if not (number.isascii() and number.isdigit()):
        raise InvalidInput("policy", f"is {text!r}; give the number of replicas, such as static:4")
    return int(number)


def _target(text: str, number: str) -> float:
    try:
        value = float(number)
    except ValueError:
        value = 0.0
    if not (isfinite(value) and value > 0):
        raise InvalidInput("policy", f"is {text!r}; the number after the colon must be above 0")
    return value
