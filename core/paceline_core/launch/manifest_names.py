"""The worker's configuration in the manifest's words: whoever wrote the manifest never saw worker.yaml."""

import re
from collections.abc import Mapping
from typing import Final

FIELDS: Final[Mapping[str, str]] = {
    "model": "spec.model.source",
    "engine.max_model_len": "spec.engine.maxModelLen",
    "engine.max_seqs": "spec.engine.maxSeqs",
    "engine.step_tokens": "spec.engine.stepTokens",
    "engine.page_tokens": "spec.engine.kvCache.pageTokens",
    "engine.attention_window": "spec.engine.kvCache.attentionWindow",
    "engine.sink_tokens": "spec.engine.kvCache.sinkTokens",
    "engine.kv_dtype": "spec.engine.kvCache.dtype",
    "engine.device": "spec.pools[].accelerator",
    "engine.batch_invariant": "spec.engine.batchInvariant",
    "engine.warm_prefixes": "spec.engine.warmPrefixes",
    "engine.host_bytes": "spec.engine.kvCache.hostOffloadBytes",
    "engine.disk_bytes": "spec.engine.kvCache.diskOffloadBytes",
    "engine.disk_path": "spec.engine.kvCache.diskOffloadBytes",
    "engine.class_reserved": "spec.classes",
    "engine.emulate": "spec.engine.emulate",
    "engine.emulate.accelerator": "spec.engine.emulate.accelerator",
    "engine.emulate.model": "spec.engine.emulate.model",
    "engine.emulate.cold_start_s": "spec.engine.emulate.coldStart",
}
_SPEAKER: Final = "paceline worker: "
_FIELD: Final = re.compile(r"^[a-z_.]+(?=: )")
_FILTER: Final = re.compile(r"^(?=filters\[\d+\][a-z_.]*: )")


def to_manifest_field(line: str) -> str:
    """A worker's last line, `paceline worker: field: message`, as `field: message` with the manifest's field."""
    if not line.startswith(_SPEAKER):
        return line
    said = _FIELD.sub(lambda found: FIELDS.get(found[0], found[0]), line.removeprefix(_SPEAKER))
    return _FILTER.sub("spec.", said)
