"""The rules of where and how much: pools, scaling, rollout."""

from typing import Final

from paceline_core.objects.pods import SOURCES
from paceline_core.objects.rules.rule import Rule, service_rule

_POOLS: Final = (
    service_rule(
        "spec.pools",
        "self.exists(p, has(p.role) && p.role == 'prefill') == self.exists(p, has(p.role) && p.role == 'decode')",
        "prefill and decode are two halves of one service: give both a pool, or use role both",
    ),
    service_rule(
        "spec.pools[]",
        "self.name != 'canary'",
        "the name canary is reserved for the canary's Deployment: choose another, like main",
        ".name",
    ),
    service_rule(
        "spec.pools[]",
        "self.accelerator != 'cpu' || !has(self.gpusPerReplica) || self.gpusPerReplica == 0",
        "accelerator cpu has no GPUs: set gpusPerReplica to 0, or name the GPU's AcceleratorProfile",
        ".gpusPerReplica",
    ),
    service_rule(
        "spec.pools[].replicas",
        "!has(self.min) || !has(self.max) || self.min <= self.max",
        "min is above max: lower min or raise max",
        ".min",
    ),
    service_rule(
        "spec.pools[].tolerations[]",
        "has(self.operator) && self.operator == 'Exists' ? !has(self.value) : has(self.key)",
        "operator Exists takes no value, and Equal needs a key: remove value, or set key",
    ),
    service_rule(
        "spec.pools[].tolerations[]",
        "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
        "tolerationSeconds needs effect NoExecute: set it, or remove tolerationSeconds",
        ".tolerationSeconds",
    ),
)

_OWN_VOLUMES: Final = ("worker", "trust", "tmp", "cache", "pages")
_OWN_PATHS: Final = ("/etc/paceline", "/tmp", "/cache", "/pages")  # noqa: S108 - paths in a container

_VOLUMES: Final = (
    service_rule(
        "spec.pools[].volumes[]",
        f"[{', '.join(f'has(self.{source}) ? 1 : 0' for source in SOURCES)}].sum() == 1",
        f"a volume has one source: set exactly one of {', '.join(SOURCES)}",
    ),
    service_rule(
        "spec.pools[].volumes[]",
        f"!(self.name in [{', '.join(repr(name) for name in _OWN_VOLUMES)}])",
        f"the names {', '.join(_OWN_VOLUMES)} are those of paceline's own volumes: choose another, like models",
        ".name",
    ),
    service_rule(
        "spec.pools[].volumes[]",
        " && ".join(f"self.mountPath != '{path}' && !self.mountPath.startsWith('{path}/')" for path in _OWN_PATHS),
        f"the paths {', '.join(_OWN_PATHS)} are paceline's own: mount it elsewhere, like /models",
        ".mountPath",
    ),
)

_SCALING: Final = (
    service_rule(
        "spec.scaling",
        "!has(self.scaleToZero) || !has(self.policy) || !(self.policy in ['fixed', 'external'])",
        "policies fixed and external never go to zero by themselves: remove scaleToZero, or choose another policy",
        ".scaleToZero",
    ),
    service_rule(
        "spec.scaling",
        "!has(self.budget) || !has(self.policy) || self.policy != 'external'",
        "nobody holds a budget while an external autoscaler sets replicas: remove budget, or choose another policy",
        ".budget",
    ),
    service_rule(
        "spec.scaling.budget",
        "has(self.gpus) || has(self.dollarsPerHour)",
        "needs gpus or dollarsPerHour",
    ),
)

_ROLLOUT: Final = (
    service_rule(
        "spec.rollout",
        "!has(self.canary) || (has(self.strategy) && self.strategy == 'canary')",
        "canary settings need strategy canary: set rollout.strategy to canary, or remove canary",
        ".canary",
    ),
    service_rule(
        "spec.rollout.canary.steps",
        "self.isSorted()",
        "steps are shares of traffic that only grow: write them in ascending order, like [5, 25, 50, 100]",
    ),
)

CAPACITY_RULES: Final[tuple[Rule, ...]] = (*_POOLS, *_VOLUMES, *_SCALING, *_ROLLOUT)
