"""The rules of an InferenceService, outermost first. Predicates see data without defaults and fill in their own."""

from re import fullmatch
from typing import Any, Final

from paceline_core.objects.fields import SERVICE_NAME_PATTERN
from paceline_core.objects.rules.promise import promise_rules
from paceline_core.objects.rules.rule import Predicate, Rule
from paceline_core.objects.rules.source import source_rule


def _rule(path: str, cel: str, message: str, holds: Predicate, field: str = "") -> Rule:
    return Rule("InferenceService", path, cel, message, holds, field)


def _runtime(spec: dict[str, Any]) -> str:
    return str(spec.get("runtime", {}).get("name", "paceline"))


def _emulated(spec: dict[str, Any]) -> bool:
    return "emulate" in spec.get("engine", {})


def _least(pool: dict[str, Any]) -> int:
    return int(pool.get("replicas", {}).get("min", 1))


def _gpus(pool: dict[str, Any], *, emulated: bool) -> int:
    return int(pool.get("gpusPerReplica", 0 if emulated or pool["accelerator"] == "cpu" else 1))


def _splits(spec: dict[str, Any]) -> bool:
    parallel = spec.get("engine", {}).get("parallel", {})
    pipeline, expert = parallel.get("pipeline", 1), parallel.get("expert", 1)
    tensor = parallel.get("tensor")
    gpus = [pool["gpusPerReplica"] for pool in spec["pools"] if pool.get("gpusPerReplica", 0) > 0]
    whole = all(count % pipeline == 0 if tensor is None else count == tensor * pipeline for count in gpus)
    return whole and all(count % expert == 0 for count in gpus)


def _within_gpus(spec: dict[str, Any]) -> bool:
    scaling = spec.get("scaling", {})
    limit = scaling.get("budget", {}).get("gpus")
    if limit is None or "scaleToZero" in scaling:
        return True
    return sum(_least(pool) * _gpus(pool, emulated=_emulated(spec)) for pool in spec["pools"]) <= int(limit)


def _fixed(spec: dict[str, Any]) -> bool:
    if spec.get("scaling", {}).get("policy") != "fixed":
        return True
    return all(pool.get("replicas", {}).get("max", _least(pool)) == _least(pool) for pool in spec["pools"])


_OBJECT: Final = (
    _rule(
        "",
        f"self.metadata.name.size() <= 40 && self.metadata.name.matches('{SERVICE_NAME_PATTERN}')",
        "name must be 1 to 40 lower-case letters, digits and dashes, beginning with a letter: it begins other names",
        lambda it: (
            len(it["metadata"]["name"]) <= 40 and fullmatch(SERVICE_NAME_PATTERN, it["metadata"]["name"]) is not None
        ),
        ".metadata.name",
    ),
)

_SPEC: Final = (
    _rule(
        "spec",
        "!has(self.engine) || !has(self.engine.emulate) || !has(self.runtime) || !has(self.runtime.name)"
        " || self.runtime.name == 'paceline'",
        "only the built-in worker can emulate: remove emulate, or set runtime.name to paceline",
        lambda it: not _emulated(it) or _runtime(it) == "paceline",
        ".engine.emulate",
    ),
    _rule(
        "spec",
        "!self.model.source.startsWith('builtin://') || !has(self.runtime) || !has(self.runtime.name)"
        " || self.runtime.name == 'paceline'",
        "a builtin:// model ships inside the built-in worker: set runtime.name to paceline, or name another source",
        lambda it: not it["model"]["source"].startswith("builtin://") or _runtime(it) == "paceline",
        ".model.source",
    ),
    _rule(
        "spec",
        "!has(self.engine) || !has(self.engine.emulate)"
        " || self.pools.all(p, !has(p.gpusPerReplica) || p.gpusPerReplica == 0)",
        "an emulated service asks for no GPUs: set gpusPerReplica to 0 (engine.parallel emulates several)",
        lambda it: not _emulated(it) or all(pool.get("gpusPerReplica", 0) == 0 for pool in it["pools"]),
        ".pools",
    ),
    _rule(
        "spec",
        "!has(self.engine) || !has(self.engine.parallel) || self.pools.all(p,"
        " !has(p.gpusPerReplica) || p.gpusPerReplica == 0"
        " || ((has(self.engine.parallel.tensor)"
        " ? p.gpusPerReplica == self.engine.parallel.tensor *"
        " (has(self.engine.parallel.pipeline) ? self.engine.parallel.pipeline : 1)"
        " : p.gpusPerReplica % (has(self.engine.parallel.pipeline) ? self.engine.parallel.pipeline : 1) == 0)"
        " && p.gpusPerReplica % (has(self.engine.parallel.expert) ? self.engine.parallel.expert : 1) == 0))",
        "tensor x pipeline must equal gpusPerReplica of every pool, and expert must divide it: change one of them",
        _splits,
        ".engine.parallel",
    ),
    _rule(
        "spec",
        "!has(self.runtime) || !has(self.runtime.workloadRef)"
        " || (self.pools.size() == 1 && (!has(self.pools[0].role) || self.pools[0].role == 'both'))",
        "a workloadRef is one Deployment: keep exactly one pool, with role both",
        lambda it: (
            "workloadRef" not in it.get("runtime", {}) or [p.get("role", "both") for p in it["pools"]] == ["both"]
        ),
        ".pools",
    ),
    _rule(
        "spec",
        "!has(self.scaling) || !has(self.scaling.scaleToZero)"
        " || self.pools.all(p, !has(p.replicas) || !has(p.replicas.min) || p.replicas.min == 0)",
        "scaleToZero contradicts a min above 0: set replicas.min to 0 in every pool, or remove scaleToZero",
        lambda it: (
            "scaleToZero" not in it.get("scaling", {})
            or all(pool.get("replicas", {}).get("min", 0) == 0 for pool in it["pools"])
        ),
        ".scaling.scaleToZero",
    ),
    _rule(
        "spec",
        "!has(self.scaling) || !has(self.scaling.policy) || self.scaling.policy != 'fixed' || self.pools.all(p,"
        " !has(p.replicas) || !has(p.replicas.max)"
        " || p.replicas.max == (has(p.replicas.min) ? p.replicas.min : 1))",
        "policy fixed keeps replicas.min: remove replicas.max or make it equal to min in every pool",
        _fixed,
        ".pools",
    ),
    _rule(
        "spec",
        "!has(self.scaling) || has(self.scaling.scaleToZero) || !has(self.scaling.budget)"
        " || !has(self.scaling.budget.gpus) || self.pools.map(p,"
        " (has(p.replicas) && has(p.replicas.min) ? p.replicas.min : 1) *"
        " (has(p.gpusPerReplica) ? p.gpusPerReplica"
        " : (p.accelerator == 'cpu' || (has(self.engine) && has(self.engine.emulate)) ? 0 : 1))"
        ").sum() <= self.scaling.budget.gpus",
        "the budget is below what the pools' min needs (sum of replicas.min x gpusPerReplica): raise gpus or lower min",
        _within_gpus,
        ".scaling.budget.gpus",
    ),
)

_MODEL: Final = (
    source_rule("spec.model.source", builtin=True),
    source_rule("spec.model.tokenizer", builtin=False),
    source_rule("spec.model.adapters[].source", builtin=False),
    source_rule("spec.engine.speculative.draftModel", builtin=False),
    _rule(
        "spec.model",
        "!has(self.revision) || self.source.startsWith('hf://')",
        "a revision belongs to an hf:// source: remove it, or name the version in the source itself",
        lambda it: "revision" not in it or it["source"].startswith("hf://"),
        ".revision",
    ),
)

_RUNTIME: Final = (
    _rule(
        "spec.runtime",
        "!has(self.name) || self.name != 'custom' || has(self.image) || has(self.workloadRef)",
        "runtime custom needs an image, or a workloadRef to an existing Deployment",
        lambda it: it.get("name") != "custom" or "image" in it or "workloadRef" in it,
        ".image",
    ),
    _rule(
        "spec.runtime",
        "!has(self.workloadRef) || (!has(self.image) && !has(self.args) && !has(self.env))",
        "paceline never writes to a referenced Deployment: set image, args and env there and remove them here",
        lambda it: "workloadRef" not in it or it.keys().isdisjoint(("image", "args", "env")),
        ".workloadRef",
    ),
    _rule(
        "spec.runtime",
        "!has(self.workloadRef) || (has(self.name) && self.name != 'paceline')",
        "a workloadRef needs a foreign runtime: set runtime.name to what the Deployment runs, like vllm or custom",
        lambda it: "workloadRef" not in it or it.get("name", "paceline") != "paceline",
        ".name",
    ),
    _rule(
        "spec.runtime.env[]",
        "has(self.value) != has(self.valueFrom)",
        "needs exactly one of value and valueFrom",
        lambda it: ("value" in it) != ("valueFrom" in it),
    ),
    _rule(
        "spec.runtime.env[]",
        "!self.name.startsWith('PACELINE_')",
        "variables that start with PACELINE_ are paceline's own: choose another name",
        lambda it: not it["name"].startswith("PACELINE_"),
        ".name",
    ),
    _rule(
        "spec.runtime.env[].valueFrom",
        "has(self.secretKeyRef) != has(self.configMapKeyRef)",
        "needs exactly one of secretKeyRef and configMapKeyRef",
        lambda it: ("secretKeyRef" in it) != ("configMapKeyRef" in it),
    ),
)

_ENGINE: Final = (
    _rule(
        "spec.engine",
        "!has(self.maxSeqs) || !has(self.stepTokens) || self.stepTokens >= self.maxSeqs",
        "every running request needs one token in a step: raise stepTokens to at least maxSeqs, or lower maxSeqs",
        lambda it: "maxSeqs" not in it or "stepTokens" not in it or it["stepTokens"] >= it["maxSeqs"],
        ".stepTokens",
    ),
    _rule(
        "spec.engine.kvCache.pageTokens",
        "self in [8, 16, 32, 64, 128, 256, 512, 1024]",
        "must be a power of two from 8 to 1024, like 64",
        lambda it: it in (8, 16, 32, 64, 128, 256, 512, 1024),
    ),
    _rule(
        "spec.engine.kvCache",
        "!has(self.sinkTokens) || (has(self.attentionWindow) && self.sinkTokens < self.attentionWindow)",
        "sinkTokens needs an attentionWindow that is larger: set attentionWindow, or remove sinkTokens",
        lambda it: "sinkTokens" not in it or it["sinkTokens"] < it.get("attentionWindow", 0),
        ".sinkTokens",
    ),
    _rule(
        "spec.engine.speculative",
        "(self.method == 'draft') == has(self.draftModel)",
        "draftModel goes with method draft, and only with it: set both, or remove draftModel",
        lambda it: (it["method"] == "draft") == ("draftModel" in it),
        ".draftModel",
    ),
)

_POOLS: Final = (
    _rule(
        "spec.pools",
        "self.exists(p, has(p.role) && p.role == 'prefill') == self.exists(p, has(p.role) && p.role == 'decode')",
        "prefill and decode are two halves of one service: give both a pool, or use role both",
        lambda it: any(p.get("role") == "prefill" for p in it) == any(p.get("role") == "decode" for p in it),
    ),
    _rule(
        "spec.pools[]",
        "self.name != 'canary'",
        "the name canary is reserved for the canary's Deployment: choose another, like main",
        lambda it: it["name"] != "canary",
        ".name",
    ),
    _rule(
        "spec.pools[]",
        "self.accelerator != 'cpu' || !has(self.gpusPerReplica) || self.gpusPerReplica == 0",
        "accelerator cpu has no GPUs: set gpusPerReplica to 0, or name the GPU's AcceleratorProfile",
        lambda it: it["accelerator"] != "cpu" or it.get("gpusPerReplica", 0) == 0,
        ".gpusPerReplica",
    ),
    _rule(
        "spec.pools[].replicas",
        "!has(self.min) || !has(self.max) || self.min <= self.max",
        "min is above max: lower min or raise max",
        lambda it: "min" not in it or "max" not in it or it["min"] <= it["max"],
        ".min",
    ),
    _rule(
        "spec.pools[].tolerations[]",
        "has(self.operator) && self.operator == 'Exists' ? !has(self.value) : has(self.key)",
        "operator Exists takes no value, and Equal needs a key: remove value, or set key",
        lambda it: "value" not in it if it.get("operator") == "Exists" else "key" in it,
    ),
    _rule(
        "spec.pools[].tolerations[]",
        "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
        "tolerationSeconds needs effect NoExecute: set it, or remove tolerationSeconds",
        lambda it: "tolerationSeconds" not in it or it.get("effect") == "NoExecute",
        ".tolerationSeconds",
    ),
)

_SCALING: Final = (
    _rule(
        "spec.scaling",
        "!has(self.scaleToZero) || !has(self.policy) || !(self.policy in ['fixed', 'external'])",
        "policies fixed and external never go to zero by themselves: remove scaleToZero, or choose another policy",
        lambda it: "scaleToZero" not in it or it.get("policy") not in ("fixed", "external"),
        ".scaleToZero",
    ),
    _rule(
        "spec.scaling",
        "!has(self.budget) || !has(self.policy) || self.policy != 'external'",
        "nobody holds a budget while an external autoscaler sets replicas: remove budget, or choose another policy",
        lambda it: "budget" not in it or it.get("policy") != "external",
        ".budget",
    ),
    _rule(
        "spec.scaling.budget",
        "has(self.gpus) || has(self.dollarsPerHour)",
        "needs gpus or dollarsPerHour",
        lambda it: "gpus" in it or "dollarsPerHour" in it,
    ),
)

_ROLLOUT: Final = (
    _rule(
        "spec.rollout",
        "!has(self.canary) || (has(self.strategy) && self.strategy == 'canary')",
        "canary settings need strategy canary: set rollout.strategy to canary, or remove canary",
        lambda it: "canary" not in it or it.get("strategy") == "canary",
        ".canary",
    ),
    _rule(
        "spec.rollout.canary.steps",
        "self.isSorted()",
        "steps are shares of traffic that only grow: write them in ascending order, like [5, 25, 50, 100]",
        lambda it: it == sorted(it),
    ),
)

SERVICE_RULES: Final = (
    *_OBJECT, *_SPEC, *_MODEL, *_RUNTIME, *_ENGINE, *promise_rules(), *_POOLS, *_SCALING, *_ROLLOUT,
)  # fmt: skip
