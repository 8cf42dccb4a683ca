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
    "engine.emulate": "spec.engine.emulate",
    "engine.emulate.accelerator": "spec.engine.emulate.accelerator",
    "engine.emulate.model": "spec.engine.emulate.model",
    "engine.emulate.cold_start_s": "spec.engine.emulate.coldStart",
}
_LAST_WORDS: Final = re.compile(r"^paceline worker: (?P<field>[a-z_.]+): ")


def in_manifest_words(line: str) -> str:
    """A worker's last line, `paceline worker: field: message`, with the manifest's field; any other line as it is."""
    found = _LAST_WORDS.match(line)
    if found is None or found["field"] not in FIELDS:
        return line
    return f"{FIELDS[found['field']]}: {line[found.end() :]}"
