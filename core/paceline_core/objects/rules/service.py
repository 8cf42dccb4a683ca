"""The rules of an InferenceService about several fields. Rules see data without defaults.

Durations are bounded on both sides. The SLO rules are the same for each class and metric, so they are made for each.
"""

from typing import Final

from paceline_core.objects.fields import SERVICE_NAME_PATTERN
from paceline_core.objects.pods import SOURCES
from paceline_core.objects.rules.rule import Rule, service_rule
from paceline_core.objects.rules.workload import PROGRAM_RULES
from paceline_core.registry.enums import RequestClass

_KEYS: Final = ("p50", "p90", "p95", "p99")
_MAX_WINDOW: Final = "1s"


def slo_rules() -> tuple[Rule, ...]:
    return (
        *(rule for cls in RequestClass for rule in _class_rules(f"spec.classes.{cls}")),
        *(
            rule
            for cls in RequestClass
            for metric in ("ttft", "tpot", "e2e")
            for rule in _quantile_rules(f"spec.classes.{cls}.slo.{metric}")
        ),
        *(
            service_rule(
                f"spec.classes.{cls}.slo.ttft",
                f"!has(self.per1kPromptTokens) || {' || '.join(f'has(self.{key})' for key in _KEYS)}",
                "per1kPromptTokens adds to the limits, and there is none: write p50, p90, p95 or p99 as well",
                ".per1kPromptTokens",
            )
            for cls in RequestClass
        ),
    )


def _class_rules(path: str) -> tuple[Rule, ...]:
    shorter = " && ".join(
        f"(!has(self.slo.ttft.{key}) || duration(self.batchWindow) < duration(self.slo.ttft.{key}))" for key in _KEYS
    )
    above = " && ".join(
        f"(!has(self.ttft.{key}) || !has(self.e2e.{key}) || duration(self.ttft.{key}) <= duration(self.e2e.{key}))"
        for key in _KEYS
    )
    return (
        service_rule(
            f"{path}.availability",
            "self >= 0.5 && self < 1.0",
            "must be from 0.5 to below 1, like 0.999: nothing answers every request for ever",
        ),
        service_rule(
            f"{path}.batchWindow",
            f"duration(self) <= duration('{_MAX_WINDOW}')",
            f"every request waits as long for company: write at most {_MAX_WINDOW}, like 3ms (interactive) or 20ms",
        ),
        service_rule(
            path,
            f"!has(self.batchWindow) || !has(self.slo) || !has(self.slo.ttft) || ({shorter})",
            "batchWindow alone would break the ttft promise: make it shorter than every ttft target",
            ".batchWindow",
        ),
        service_rule(
            f"{path}.slo",
            f"!has(self.ttft) || !has(self.e2e) || ({above})",
            "an e2e target is below the ttft target of the same quantile: raise e2e or lower ttft",
            ".e2e",
        ),
    )


def _quantile_rules(path: str) -> tuple[Rule, ...]:
    pairs = [(low, high) for index, low in enumerate(_KEYS) for high in _KEYS[index + 1 :]]
    ascending = " && ".join(
        f"(!has(self.{low}) || !has(self.{high}) || duration(self.{low}) <= duration(self.{high}))"
        for low, high in pairs
    )
    positive = " && ".join(f"(!has(self.{key}) || duration(self.{key}) > duration('0s'))" for key in _KEYS)
    return (
        service_rule(
            path,
            ascending,
            "a higher quantile cannot have a lower limit: make p50 <= p90 <= p95 <= p99",
        ),
        service_rule(
            path,
            positive,
            "no request takes no time: make every limit longer than 0s",
        ),
    )


def _within(path: str, least: str, most: str, example: str) -> Rule:
    return service_rule(
        path,
        f"duration(self) >= duration('{least}') && duration(self) <= duration('{most}')",
        f"must be from {least} to {most}, like {example}",
    )


DURATION_RULES: Final[tuple[Rule, ...]] = (
    *(_within(f"spec.classes.{cls}.holdTimeout", "1ms", "24h", "2m") for cls in RequestClass),
    _within("spec.engine.emulate.coldStart", "0s", "1h", "30s"),
    _within("spec.scaling.scaleToZero.after", "1s", "168h", "15m"),
    _within("spec.rollout.canary.window", "1s", "24h", "5m"),
    _within("spec.rollout.drainTimeout", "1s", "24h", "5m"),
)

_RESERVED: Final = " + ".join(
    f"(has(self.classes.{cls}) && has(self.classes.{cls}.reservedPercent) ? self.classes.{cls}.reservedPercent : 0)"
    for cls in ("interactive", "batch")
)

# the defaults of defaults.py, in CEL
_GPUS: Final = (
    "(has(p.gpusPerReplica) ? p.gpusPerReplica"
    " : (p.accelerator == 'cpu' || (has(self.engine) && has(self.engine.emulate)) ? 0 : 1))"
)
_PIPELINE: Final = "(has(self.engine.parallel.pipeline) ? self.engine.parallel.pipeline : 1)"
_EXPERT: Final = "(has(self.engine.parallel.expert) ? self.engine.parallel.expert : 1)"


_OBJECT: Final = (
    service_rule(
        "",
        f"self.metadata.name.size() <= 40 && self.metadata.name.matches('{SERVICE_NAME_PATTERN}')",
        "name must be 1 to 40 lower-case letters, digits and dashes, beginning with a letter: it begins other names",
        ".metadata.name",
    ),
)

_SPEC: Final = (
    service_rule(
        "spec",
        "!has(self.engine) || !has(self.engine.emulate) || !has(self.runtime) || !has(self.runtime.name)"
        " || self.runtime.name == 'paceline'",
        "only the built-in worker can emulate: remove emulate, or set runtime.name to paceline",
        ".engine.emulate",
    ),
    service_rule(
        "spec",
        "!self.model.source.startsWith('builtin://') || !has(self.runtime) || !has(self.runtime.name)"
        " || self.runtime.name == 'paceline'",
        "a builtin:// model ships inside the built-in worker: set runtime.name to paceline, or name another source",
        ".model.source",
    ),
    service_rule(
        "spec",
        "!has(self.engine) || !has(self.engine.emulate)"
        " || self.pools.all(p, !has(p.gpusPerReplica) || p.gpusPerReplica == 0)",
        "an emulated service asks for no GPUs: set gpusPerReplica to 0 (engine.parallel emulates several)",
        ".pools",
    ),
    service_rule(
        "spec",
        f"!has(self.engine) || !has(self.engine.parallel) || self.pools.map(p, {_GPUS}).all(gpus, gpus == 0"
        f" || ((has(self.engine.parallel.tensor) ? gpus == self.engine.parallel.tensor * {_PIPELINE}"
        f" : gpus % {_PIPELINE} == 0) && gpus % {_EXPERT} == 0))",
        "tensor x pipeline must equal gpusPerReplica of every pool, and expert must divide it: change one of them",
        ".engine.parallel",
    ),
    service_rule(
        "spec",
        "!has(self.runtime) || !has(self.runtime.workloadRef)"
        " || (self.pools.size() == 1 && (!has(self.pools[0].role) || self.pools[0].role == 'both'))",
        "a workloadRef is one Deployment: keep exactly one pool, with role both",
        ".pools",
    ),
    service_rule(
        "spec",
        f"!has(self.classes) || {_RESERVED} < 100",
        "interactive and batch reserve everything together: make the sum of their reservedPercent less than 100",
        ".classes",
    ),
    service_rule(
        "spec",
        "!has(self.classes) || !has(self.classes.offline) || !has(self.classes.offline.reservedPercent)"
        " || self.classes.offline.reservedPercent == 0",
        "no class is less urgent than offline and could leave it anything: remove reservedPercent",
        ".classes.offline.reservedPercent",
    ),
    service_rule(
        "spec",
        "!has(self.scaling) || !has(self.scaling.scaleToZero)"
        " || self.pools.all(p, !has(p.replicas) || !has(p.replicas.min) || p.replicas.min == 0)",
        "scaleToZero contradicts a min above 0: set replicas.min to 0 in every pool, or remove scaleToZero",
        ".scaling.scaleToZero",
    ),
    service_rule(
        "spec",
        "!has(self.scaling) || !has(self.scaling.policy) || self.scaling.policy != 'fixed' || self.pools.all(p,"
        " !has(p.replicas) || !has(p.replicas.max)"
        " || p.replicas.max == (has(p.replicas.min) ? p.replicas.min : 1))",
        "policy fixed keeps replicas.min: remove replicas.max or make it equal to min in every pool",
        ".pools",
    ),
    service_rule(
        "spec",
        "!has(self.scaling) || has(self.scaling.scaleToZero) || !has(self.scaling.budget)"
        " || !has(self.scaling.budget.gpus) || self.pools.map(p,"
        f" (has(p.replicas) && has(p.replicas.min) ? p.replicas.min : 1) * {_GPUS}"
        ").sum() <= self.scaling.budget.gpus",
        "the budget is below what the pools' min needs (sum of replicas.min x gpusPerReplica): raise gpus or lower min",
        ".scaling.budget.gpus",
    ),
)

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

SERVICE_RULES: Final[tuple[Rule, ...]] = (
    *_OBJECT,
    *_SPEC,
    *PROGRAM_RULES,
    *slo_rules(),
    *_POOLS,
    *_VOLUMES,
    *_SCALING,
    *_ROLLOUT,
    *DURATION_RULES,
)
