"""Every row of what this version lacks is refused by `lint`, with the field as the manifest has it."""

from pathlib import Path
from typing import Any

import yaml

from paceline_cli.commands.lint import examine
from paceline_core.launch.unsupported import GAPS

CPU = {"name": "main", "accelerator": "cpu"}
GPU = {"name": "gpus", "accelerator": "h100"}
DEMO = {"source": "builtin://demo"}
ASKED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("spec.runtime.name", {"runtime": {"name": "vllm"}, "model": {"source": "hf://org/name"}}),
    ("spec.runtime.args", {"runtime": {"args": ["--quiet"]}}),
    ("spec.runtime.port", {"runtime": {"port": 9000}}),
    ("spec.model.source", {"model": {"source": "hf://org/name"}}),
    ("spec.model.quantization", {"model": {**DEMO, "quantization": "int8"}}),
    ("spec.model.tokenizer", {"model": {**DEMO, "tokenizer": "hf://org/name"}}),
    ("spec.model.adapters", {"model": {**DEMO, "adapters": [{"name": "a", "source": "hf://org/a"}]}}),
    ("spec.engine.kvCache.dtype", {"engine": {"kvCache": {"dtype": "fp16"}}}),
    ("spec.engine.kvCache.dtype", {"engine": {"kvCache": {"dtype": "int8"}}}),
    ("spec.engine.kvCache.pageTokens", {"engine": {"kvCache": {"pageTokens": 256}}, "pools": [GPU]}),
    ("spec.engine.maxSeqs", {"engine": {"maxSeqs": 2000}, "pools": [GPU]}),
    ("spec.engine.batchInvariant", {"engine": {"batchInvariant": True}, "pools": [GPU]}),
    ("spec.engine.speculative", {"engine": {"speculative": {"method": "ngram"}}}),
    ("spec.engine.parallel.tensor", {"engine": {"parallel": {"tensor": 2}}}),
    ("spec.engine.parallel.pipeline", {"engine": {"parallel": {"pipeline": 2}}}),
    ("spec.engine.parallel.expert", {"engine": {"parallel": {"expert": 2}}}),
    ("spec.rollout.strategy", {"rollout": {"strategy": "canary"}}),
    ("spec.filters[1]", {"filters": [{"name": "words", "stage": stage, "config": {"words": "x"}}
                                     for stage in ("output", "input")]}),
    ("spec.telemetry.logPrompts", {"telemetry": {"logPrompts": True}}),
    ("spec.pools[0].gpusPerReplica", {"pools": [{**GPU, "gpusPerReplica": 0}]}),
    ("spec.pools[0].gpusPerReplica", {"pools": [{**GPU, "gpusPerReplica": 2}]}),
    ("spec.pools[0].role", {"pools": [{**CPU, "role": "prefill"}, {**CPU, "name": "other", "role": "decode"}]}),
    ("spec.pools[1].podLabels[a b]", {"pools": [CPU, {**GPU, "podLabels": {"a b": "c"}}]}),
)  # fmt: skip
REFUSED_EARLIER = {"spec.rollout.drainTimeout"}
"""By a rule, so that an API server that stores none has nothing to say."""


def test_every_row_is_reached_and_told_in_one_sentence_with_a_field_that_the_manifest_has(tmp_path: Path) -> None:
    file = tmp_path / "chat.yaml"
    for field, spec in ASKED:
        document = {
            "apiVersion": "paceline.dev/v1alpha1",
            "kind": "InferenceService",
            "metadata": {"name": "chat"},
            "spec": {"model": DEMO, "pools": [CPU], **spec},
        }
        file.write_text(yaml.safe_dump(document))
        (found,) = examine([file]).values()
        fault, *_ = found.faults
        place = f"{file}, document 1 (InferenceService chat): {field}: "
        assert fault.startswith(f"not served by this version: {place}")
        assert len(fault.splitlines()) == 1
    assert {gap.field for gap in GAPS} - {field for field, _ in ASKED} == REFUSED_EARLIER
