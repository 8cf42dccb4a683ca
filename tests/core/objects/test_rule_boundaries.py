"""Rules at their boundaries: values beside each other of which one is taken and one refused."""

from collections.abc import Iterator
from typing import Any

from paceline_core.cel import holds
from paceline_core.objects.metadata import ACCELERATOR_PROFILE, INFERENCE_ROUTE, INFERENCE_SERVICE, TENANT
from paceline_core.objects.rules import RULES

Values = tuple[Any, ...]


def spec(*pools: dict[str, Any], source: str = "hf://a/b", **parts: Any) -> dict[str, Any]:
    return {"model": {"source": source}, "pools": list(pools) or [{"name": "main", "accelerator": "cpu"}], **parts}


def pool(accelerator: str = "h100", **parts: Any) -> dict[str, Any]:
    return {"name": "main", "accelerator": accelerator, **parts}


def within(least: str, below: str, most: str, above: str) -> tuple[Values, Values]:
    return (least, most), (below, above)


EMULATE: dict[str, Any] = {"emulate": {"accelerator": "h100"}}
ZERO: dict[str, Any] = {"scaleToZero": {}}
FIXED = {"policy": "fixed"}
REF = {"name": "vllm", "workloadRef": {"name": "own"}}

# kind, path, values that every rule of the path takes, values that one refuses
TABLE: tuple[tuple[str, str, Values, Values], ...] = (
    (
        INFERENCE_SERVICE,
        "spec",
        (
            spec(runtime={"name": "vllm"}),
            spec(engine={}, runtime={"name": "vllm"}),
            spec(engine=EMULATE),
            spec(engine=EMULATE, runtime={}),
            spec(engine=EMULATE, runtime={"name": "paceline"}),
            spec(source="builtin://demo", runtime={}),
        ),
        (spec(engine=EMULATE, runtime={"name": "vllm"}), spec(source="builtin://demo", runtime={"name": "vllm"})),
    ),
    (
        INFERENCE_SERVICE,
        "spec",
        (
            spec(pool(gpusPerReplica=8)),
            spec(pool(gpusPerReplica=8), engine={}),
            spec(pool(gpusPerReplica=0), pool(), engine=EMULATE),
        ),
        (spec(pool(gpusPerReplica=0), pool(gpusPerReplica=1), engine=EMULATE),),
    ),
    (
        INFERENCE_SERVICE,
        "spec",
        (
            spec(pool(gpusPerReplica=8), engine={"parallel": {"tensor": 4, "pipeline": 2}}),
            spec(pool(), engine={"parallel": {"tensor": 1}}),
            spec(pool(gpusPerReplica=3), engine={"parallel": {}}),
            spec(pool("cpu"), pool(gpusPerReplica=2), engine={"parallel": {"tensor": 2}}),
            spec(pool(), engine={**EMULATE, "parallel": {"tensor": 4}}),
        ),
        (
            spec(pool(gpusPerReplica=2), pool(gpusPerReplica=4), engine={"parallel": {"tensor": 2}}),
            spec(pool(), engine={"parallel": {"tensor": 2}}),
            spec(pool(gpusPerReplica=8), engine={"parallel": {"tensor": 8, "pipeline": 2}}),
            spec(pool(gpusPerReplica=3), engine={"parallel": {"pipeline": 2}}),
            spec(pool(gpusPerReplica=8), engine={"parallel": {"tensor": 8, "expert": 3}}),
        ),
    ),
    (
        INFERENCE_SERVICE,
        "spec",
        (
            spec(pool(), pool(), runtime={"name": "vllm"}),
            spec(pool(), runtime=REF),
            spec(pool(role="both"), runtime=REF),
        ),
        (spec(pool(), pool(), runtime=REF), spec(pool(role="prefill"), runtime=REF)),
    ),
    (
        INFERENCE_SERVICE,
        "spec",
        (
            spec(classes={"interactive": {}, "batch": {}}),
            spec(classes={"interactive": {"reservedPercent": 99}}),
            spec(classes={"batch": {"reservedPercent": 99}, "offline": {"reservedPercent": 0}}),
            spec(classes={"interactive": {"reservedPercent": 50}, "batch": {"reservedPercent": 49}}),
        ),
        (
            spec(classes={"interactive": {"reservedPercent": 50}, "batch": {"reservedPercent": 50}}),
            spec(classes={"offline": {"reservedPercent": 1}}),
        ),
    ),
    (
        INFERENCE_SERVICE,
        "spec",
        (
            spec(pool(replicas={"min": 2}), scaling={}),
            spec(pool(), pool(replicas={}), pool(replicas={"min": 0}), scaling=ZERO),
        ),
        (
            spec(pool(replicas={"min": 0}), pool(replicas={"min": 1}), scaling=ZERO),
            spec(pool(), pool(replicas={"min": 1}), scaling=ZERO),
        ),
    ),
    (
        INFERENCE_SERVICE,
        "spec",
        (
            spec(pool(replicas={"max": 2}), scaling={}),
            spec(pool(replicas={"max": 2}), scaling={"policy": "slo"}),
            spec(pool(), pool(replicas={"min": 3}), pool(replicas={"min": 2, "max": 2}), scaling=FIXED),
            spec(pool(replicas={"max": 1}), scaling=FIXED),
        ),
        (
            spec(pool(replicas={"max": 2}), scaling=FIXED),
            spec(pool(), pool(replicas={"min": 1, "max": 2}), scaling=FIXED),
        ),
    ),
    (
        INFERENCE_SERVICE,
        "spec",
        (
            spec(pool(gpusPerReplica=8), scaling={}),
            spec(pool(gpusPerReplica=8), scaling={"budget": {"dollarsPerHour": "1"}}),
            spec(pool(gpusPerReplica=8), scaling={**ZERO, "budget": {"gpus": 1}}),
            spec(pool(), pool(replicas={"min": 3}), pool("cpu"), scaling={"budget": {"gpus": 4}}),
            spec(pool(replicas={}), scaling={"budget": {"gpus": 1}}),
            spec(pool("cpu", replicas={"min": 9}), scaling={"budget": {"gpus": 0}}),
            spec(pool(), engine=EMULATE, scaling={"budget": {"gpus": 0}}),
        ),
        (
            spec(pool(), pool(replicas={"min": 3}), scaling={"budget": {"gpus": 3}}),
            spec(pool(gpusPerReplica=2), engine={}, scaling={"budget": {"gpus": 1}}),
        ),
    ),
    (
        INFERENCE_SERVICE,
        "spec.runtime",
        (REF, {"name": "custom", "image": "a"}, {"name": "custom", "workloadRef": {"name": "own"}}, {}),
        ({"workloadRef": {"name": "own"}}, {"name": "paceline", "workloadRef": {"name": "own"}}, {"name": "custom"}),
    ),
    (
        INFERENCE_SERVICE,
        "spec.engine",
        (
            {"maxSeqs": 8, "stepTokens": 8},
            {"kvCache": {}, "prefixCache": False},
            {"prefixCache": False},
            {"prefixCache": False, "kvCache": {"hostOffloadBytes": "0"}},
            {"prefixCache": False, "warmPrefixes": []},
            {"warmPrefixes": ["a"]},
            {"emulate": {}, "kvCache": {}},
            {"kvCache": {"diskOffloadBytes": "1Gi"}},
        ),
        (
            {"maxSeqs": 8, "stepTokens": 7},
            {"prefixCache": False, "kvCache": {"hostOffloadBytes": "1"}},
            {"prefixCache": False, "warmPrefixes": ["a"]},
            {"emulate": {}, "kvCache": {"diskOffloadBytes": "1Gi"}},
        ),
    ),
    (
        INFERENCE_SERVICE,
        "spec.engine.kvCache",
        (
            {"sinkTokens": 63, "attentionWindow": 64},
            {"attentionWindow": 64, "pageTokens": 64},
            {"diskOffloadBytes": "1Gi", "hostOffloadBytes": "1"},
        ),
        (
            {"sinkTokens": 64, "attentionWindow": 64},
            {"sinkTokens": 4},
            {"attentionWindow": 63, "pageTokens": 64},
            {"diskOffloadBytes": "1Gi", "hostOffloadBytes": "0"},
            {"diskOffloadBytes": "1Gi"},
        ),
    ),
    (INFERENCE_SERVICE, "spec.engine.kvCache.diskOffloadBytes", *within("1Mi", "1023Ki", "65535Gi", "64Ti")),
    (INFERENCE_SERVICE, "spec.engine.kvCache.hostOffloadBytes", ("0", "65535Gi"), ("64Ti",)),
    (
        INFERENCE_SERVICE,
        "spec.filters[]",
        (
            {"name": "own"},
            {"name": "own", "config": {"what": "ever"}},
            {"name": "words", "config": {"words": "a"}},
            {"name": "words", "config": {"words": "a", "action": "end", "replacement": "-"}},
        ),
        (
            {"name": "words"},
            {"name": "words", "config": {"words": ""}},
            {"name": "words", "config": {"words": "a", "action": "stop"}},
            {"name": "words", "config": {"words": "a", "colour": "red"}},
        ),
    ),
    (INFERENCE_SERVICE, "spec.classes.interactive.availability", (0.5, 0.999), (0.499, 1.0)),
    (INFERENCE_SERVICE, "spec.classes.interactive.batchWindow", ("1s",), ("1001ms",)),
    (
        INFERENCE_SERVICE,
        "spec.classes.interactive",
        (
            {"batchWindow": "3ms"},
            {"batchWindow": "3ms", "slo": {"e2e": {"p95": "1ms"}}},
            {"slo": {"ttft": {"p95": "1ms"}}},
            *({"batchWindow": "3ms", "slo": {"ttft": {key: "4ms"}}} for key in ("p50", "p90", "p95", "p99")),
        ),
        tuple({"batchWindow": "3ms", "slo": {"ttft": {key: "3ms"}}} for key in ("p50", "p90", "p95", "p99")),
    ),
    (
        INFERENCE_SERVICE,
        "spec.classes.interactive.slo",
        (
            {"ttft": {"p50": "9s"}},
            {"e2e": {"p50": "1s"}},
            {"ttft": {"p50": "9s"}, "e2e": {"p99": "1s"}},
            {"ttft": {"p99": "9s"}, "e2e": {"p50": "1s"}},
            *({"ttft": {key: "1s"}, "e2e": {key: "1s"}} for key in ("p50", "p90", "p95", "p99")),
        ),
        tuple({"ttft": {key: "1001ms"}, "e2e": {key: "1s"}} for key in ("p50", "p90", "p95", "p99")),
    ),
    (
        INFERENCE_SERVICE,
        "spec.classes.interactive.slo.ttft",
        (
            {"p50": "1ms", "p90": "1ms", "p95": "1ms", "p99": "1ms"},
            *({key: "1ms"} for key in ("p50", "p90", "p95", "p99")),
        ),
        (
            *({key: "0s"} for key in ("p50", "p90", "p95", "p99")),
            *({low: "2s", high: "1s"} for low, high in (("p50", "p90"), ("p50", "p95"), ("p50", "p99"))),
            *({low: "2s", high: "1s"} for low, high in (("p90", "p95"), ("p90", "p99"), ("p95", "p99"))),
        ),
    ),
    (
        INFERENCE_SERVICE,
        "spec.pools[].tolerations[]",
        (
            {"key": "a"},
            {"key": "a", "operator": "Equal", "value": "b"},
            {"operator": "Exists"},
            {"key": "a", "effect": "NoExecute", "tolerationSeconds": 1},
        ),
        (
            {},
            {"operator": "Exists", "value": "b"},
            {"key": "a", "tolerationSeconds": 1},
            {"key": "a", "effect": "NoSchedule", "tolerationSeconds": 1},
        ),
    ),
    (
        INFERENCE_SERVICE,
        "spec.rollout",
        ({"canary": {}, "strategy": "canary"}, {"strategy": "rolling"}, {}),
        ({"canary": {}}, {"canary": {}, "strategy": "rolling"}),
    ),
    (INFERENCE_SERVICE, "spec.rollout.canary.steps", ([5, 5, 100], [5]), ([6, 5],)),
    (INFERENCE_SERVICE, "spec.classes.interactive.holdTimeout", *within("1ms", "0ms", "24h", "86400001ms")),
    (INFERENCE_SERVICE, "spec.engine.emulate.coldStart", ("0s", "1h"), ("3600001ms",)),
    (INFERENCE_SERVICE, "spec.scaling.scaleToZero.after", *within("1s", "999ms", "168h", "168h1ms")),
    (INFERENCE_SERVICE, "spec.rollout.canary.window", *within("1s", "999ms", "24h", "24h1ms")),
    (INFERENCE_SERVICE, "spec.rollout.drainTimeout", *within("1s", "999ms", "24h", "24h1ms")),
    (INFERENCE_SERVICE, "", ({"metadata": {"name": "a" * 40}},), ({"metadata": {"name": "a" * 41}},)),
    (TENANT, "", ({"metadata": {"name": "9" * 63}},), ({"metadata": {"name": "9" * 64}},)),
    (
        TENANT,
        "spec",
        ({}, {"defaultClass": "batch"}, {"defaultClass": "batch", "classes": []}, {"classes": ["batch"]}),
        ({"defaultClass": "batch", "classes": ["offline"]},),
    ),
    (TENANT, "spec.services", (["*"], ["a", "b"]), (["a", "*"],)),
    (TENANT, "spec.limits.monthly", ({"tokens": 1}, {"dollars": "1"}), ({},)),
    (
        INFERENCE_ROUTE,
        "spec.backends",
        ([{}], [{"when": "always", "weight": 1}], [{"weight": 0}, {"when": "burst"}, {}]),
        ([{"weight": 0}], [{"when": "burst"}]),
    ),
    (INFERENCE_ROUTE, "spec.matches[]", ({"headers": {}}, {"tenants": []}), ({},)),
    (INFERENCE_ROUTE, "spec.degrade", ({"model": "a"}, {"maxTokens": 1}), ({},)),
    (
        ACCELERATOR_PROFILE,
        "spec.teraflops",
        tuple({name: 1.0} for name in ("fp32", "tf32", "bf16", "fp16", "fp8", "int8", "int4", "fp4")),
        ({},),
    ),
    (ACCELERATOR_PROFILE, "spec.memory", ("1", "0.1Gi", "10"), ("0", "0.0", "0Gi")),
)


def wrong(kind: str, path: str, values: Values, *, taken: bool) -> Iterator[str]:
    rules = [rule.cel for rule in RULES if (rule.kind, rule.path) == (kind, path)]
    assert rules, path
    for value in values:
        if all(holds(cel, value) for cel in rules) != taken:
            yield f"{kind} {path}: {value} is {'refused' if taken else 'taken'}"


def test_each_rule_is_broken_from_its_boundary_on() -> None:
    found = [
        fault
        for kind, path, taken, refused in TABLE
        for values, right in ((taken, True), (refused, False))
        for fault in wrong(kind, path, values, taken=right)
    ]
    assert found == []
