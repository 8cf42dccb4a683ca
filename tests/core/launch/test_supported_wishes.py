from typing import Any

from tests.every import cases

from paceline_core.launch import unsupported
from paceline_core.objects import InferenceService, resolve, validate

CPU = {"name": "main", "accelerator": "cpu"}
GPU = {"name": "gpus", "accelerator": "h100"}
EMULATE = {"accelerator": "h100", "model": "llama-3.1-8b"}


def wishes(**spec: Any) -> list[str]:
    document = {
        "apiVersion": "paceline.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": "chat"},
        "spec": {"model": {"source": "builtin://demo"}, "pools": [CPU], **spec},
    }
    found = validate(document)
    assert isinstance(found, InferenceService)
    return [problem.field for problem in unsupported(resolve(found))]


def demo(**model: Any) -> dict[str, Any]:
    return {"source": "builtin://demo", **model}


def test_the_demo_and_an_emulated_service_are_served() -> None:
    assert wishes() == []
    assert wishes(engine={"emulate": EMULATE}, pools=[{"name": "main", "accelerator": "h100"}]) == []


def test_windows_and_the_types_of_keys_and_values_that_are_computed_are_served() -> None:
    for cache in ({"attentionWindow": 512, "sinkTokens": 4}, {"dtype": "bf16"}, {"dtype": "fp32"}, {"dtype": "auto"}):
        assert wishes(engine={"kvCache": cache}) == []


def test_a_pool_of_gpus_is_served_with_the_pages_that_its_kernels_take() -> None:
    for cache in ({}, {"dtype": "fp8"}, {"dtype": "int8"}, {"pageTokens": 16}, {"pageTokens": 128}):
        assert wishes(engine={"kvCache": cache}, pools=[GPU]) == []


def test_what_gpus_and_cpus_cannot_is_refused_where_any_pool_computes_there() -> None:
    assert wishes(engine={"kvCache": {"dtype": "fp8"}}, pools=[GPU, CPU]) == ["spec.engine.kvCache.dtype"]
    assert wishes(engine={"kvCache": {"pageTokens": 8}}, pools=[GPU, CPU]) == ["spec.engine.kvCache.pageTokens"]
    assert wishes(engine={"kvCache": {"pageTokens": 8}}) == []
    assert wishes(engine={"batchInvariant": True}, pools=[GPU, CPU]) == ["spec.engine.batchInvariant"]
    assert wishes(engine={"batchInvariant": True}) == wishes(engine={"batchInvariant": False}, pools=[GPU]) == []
    assert wishes(engine={"maxSeqs": 2000}, pools=[GPU, CPU]) == ["spec.engine.maxSeqs"]
    assert wishes(engine={"maxSeqs": 2000}) == wishes(engine={"maxSeqs": 1024}, pools=[GPU]) == []
    narrow = {"emulate": EMULATE, "kvCache": {"dtype": "fp8", "pageTokens": 256}, "maxSeqs": 2000}
    assert wishes(engine=narrow, pools=[CPU, {**GPU, "gpusPerReplica": 0}]) == []


def test_a_filter_of_words_in_the_output_is_served() -> None:
    assert wishes(filters=[{"name": "words", "stage": "output", "config": {"words": "cat"}}]) == []


def test_telemetry_that_asks_for_nothing_is_served() -> None:
    assert wishes(telemetry={"tracing": {"sampleRatio": 0.05}, "logPrompts": False}) == []


@cases(
    ("spec", "field"),
    [
        ({"runtime": {"name": "vllm"}, "model": {"source": "hf://org/name"}}, "spec.runtime.name"),
        ({"runtime": {"args": ["--quiet"]}}, "spec.runtime.args"),
        ({"runtime": {"port": 9000}}, "spec.runtime.port"),
        ({"model": {"source": "hf://org/name"}}, "spec.model.source"),
        ({"model": demo(quantization="int8")}, "spec.model.quantization"),
        ({"model": demo(tokenizer="hf://org/tokenizer")}, "spec.model.tokenizer"),
        ({"model": demo(adapters=[{"name": "a", "source": "hf://org/a"}])}, "spec.model.adapters"),
        ({"engine": {"kvCache": {"dtype": "fp8"}}}, "spec.engine.kvCache.dtype"),
        ({"engine": {"kvCache": {"dtype": "int8"}}}, "spec.engine.kvCache.dtype"),
        ({"engine": {"speculative": {"method": "ngram"}}}, "spec.engine.speculative"),
        ({"rollout": {"strategy": "canary"}}, "spec.rollout.strategy"),
        ({"filters": [{"name": "words", "stage": "input", "config": {"words": "cat"}}]}, "spec.filters[0]"),
        ({"filters": [{"name": "pii", "stage": "output"}]}, "spec.filters[0]"),
        ({"telemetry": {"logPrompts": True}}, "spec.telemetry.logPrompts"),
        ({"engine": {"kvCache": {"dtype": "fp16"}}}, "spec.engine.kvCache.dtype"),
        ({"engine": {"kvCache": {"dtype": "fp16"}}, "pools": [GPU]}, "spec.engine.kvCache.dtype"),
        ({"pools": [CPU, {**GPU, "gpusPerReplica": 0}]}, "spec.pools[1].gpusPerReplica"),
        ({"pools": [{**GPU, "gpusPerReplica": 2}]}, "spec.pools[0].gpusPerReplica"),
        ({"engine": {"parallel": {"tensor": 2}}}, "spec.engine.parallel.tensor"),
        ({"engine": {"parallel": {"pipeline": 2}}}, "spec.engine.parallel.pipeline"),
        ({"engine": {"parallel": {"expert": 2}}}, "spec.engine.parallel.expert"),
    ],
)
def test_what_this_version_cannot_do_is_refused_by_name(spec: dict[str, Any], field: str) -> None:
    assert wishes(**spec) == [field]


def test_every_refusal_says_what_to_write_instead() -> None:
    document = {"model": demo(quantization="int8"), "engine": {"speculative": {"method": "ngram"}}}
    found = validate(
        {
            "apiVersion": "paceline.dev/v1alpha1",
            "kind": "InferenceService",
            "metadata": {"name": "chat"},
            "spec": {**document, "pools": [CPU]},
        }
    )
    assert isinstance(found, InferenceService)
    problems = list(unsupported(resolve(found)))
    assert len(problems) == 2
    assert all(";" in problem.message for problem in problems)


def test_of_several_pools_those_are_named_that_cannot() -> None:
    document = {
        "apiVersion": "paceline.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": "chat"},
        "spec": {"model": demo(), "pools": [GPU, CPU], "engine": {"kvCache": {"dtype": "fp8", "pageTokens": 8}}},
    }
    found = validate(document)
    assert isinstance(found, InferenceService)
    dtype, page = (problem.message for problem in unsupported(resolve(found)))
    assert dtype.endswith("or leave it out (pool main)")
    assert page.endswith("or leave it out (pool gpus)")
