"""The rules of where and how much: pools, scaling, rollout."""

from typing import Final

from paceline_core.objects.pods import SOURCES
from paceline_core.objects.rules.rule import Rule, service_rule

_POOLS: Final = (
    service_rule(
        "spec.pools",
        "self.exists(p, has(p.role) && p.role == 'prefill') == self.exists(p, has(p.role) && p.role == 'decode')",
        "prefill and decode are two halves of one service: give both a pool, or use role both",
        lambda it: any(p.get("role") == "prefill" for p in it) == any(p.get("role") == "decode" for p in it),
    ),
    service_rule(
        "spec.pools[]",
        "self.name != 'canary'",
        "the name canary is reserved for the canary's Deployment: choose another, like main",
        lambda it: it["name"] != "canary",
        ".name",
    ),
    service_rule(
        "spec.pools[]",
        "self.accelerator != 'cpu' || !has(self.gpusPerReplica) || self.gpusPerReplica == 0",
        "accelerator cpu has no GPUs: set gpusPerReplica to 0, or name the GPU's AcceleratorProfile",
        lambda it: it["accelerator"] != "cpu" or it.get("gpusPerReplica", 0) == 0,
        ".gpusPerReplica",
    ),
    service_rule(
        "spec.pools[].replicas",
        "!has(self.min) || !has(self.max) || self.min <= self.max",
        "min is above max: lower min or raise max",
        lambda it: "min" not in it or "max" not in it or it["min"] <= it["max"],
        ".min",
    ),
    service_rule(
        "spec.pools[].tolerations[]",
        "has(self.operator) && self.operator == 'Exists' ? !has(self.value) : has(self.key)",
        "operator Exists takes no value, and Equal needs a key: remove value, or set key",
        lambda it: "value" not in it if it.get("operator") == "Exists" else "key" in it,
    ),
    service_rule(
        "spec.pools[].tolerations[]",
        "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
        "tolerationSeconds needs effect NoExecute: set it, or remove tolerationSeconds",
        lambda it: "tolerationSeconds" not in it or it.get("effect") == "NoExecute",
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
        lambda it: sum(source in it for source in SOURCES) == 1,
    ),
    service_rule(
        "spec.pools[].volumes[]",
        f"!(self.name in [{', '.join(repr(name) for name in _OWN_VOLUMES)}])",
        f"the names {', '.join(_OWN_VOLUMES)} are those of paceline's own volumes: choose another, like models",
        lambda it: it["name"] not in _OWN_VOLUMES,
        ".name",
    ),
    service_rule(
        "spec.pools[].volumes[]",
        " && ".join(f"self.mountPath != '{path}' && !self.mountPath.startsWith('{path}/')" for path in _OWN_PATHS),
        f"the paths {', '.join(_OWN_PATHS)} are paceline's own: mount it elsewhere, like /models",
        lambda it: not any(it["mountPath"] == path or it["mountPath"].startswith(f"{path}/") for path in _OWN_PATHS),
        ".mountPath",
    ),
)

_SCALING: Final = (
    service_rule(
        "spec.scaling",
        "!has(self.scaleToZero) || !has(self.policy) || !(self.policy in ['fixed', 'external'])",
        "policies fixed and external never go to zero by themselves: remove scaleToZero, or choose another policy",
        lambda it: "scaleToZero" not in it or it.get("policy") not in ("fixed", "external"),
        ".scaleToZero",
    ),
    service_rule(
        "spec.scaling",
        "!has(self.budget) || !has(self.policy) || self.policy != 'external'",
        "nobody holds a budget while an external autoscaler sets replicas: remove budget, or choose another policy",
        lambda it: "budget" not in it or it.get("policy") != "external",
        ".budget",
    ),
    service_rule(
        "spec.scaling.budget",
        "has(self.gpus) || has(self.dollarsPerHour)",
        "needs gpus or dollarsPerHour",
        lambda it: "gpus" in it or "dollarsPerHour" in it,
    ),
)

_ROLLOUT: Final = (
    service_rule(
        "spec.rollout",
        "!has(self.canary) || (has(self.strategy) && self.strategy == 'canary')",
        "canary settings need strategy canary: set rollout.strategy to canary, or remove canary",
        lambda it: "canary" not in it or it.get("strategy") == "canary",
        ".canary",
    ),
    service_rule(
        "spec.rollout.canary.steps",
        "self.isSorted()",
        "steps are shares of traffic that only grow: write them in ascending order, like [5, 25, 50, 100]",
        lambda it: it == sorted(it),
    ),
)

CAPACITY_RULES: Final[tuple[Rule, ...]] = (*_POOLS, *_VOLUMES, *_SCALING, *_ROLLOUT)
