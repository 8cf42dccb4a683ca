"""The rules of the workload: model, runtime, engine, filters.

The rule about sources of weights is made for each field that has a source.
"""

from typing import Final

from paceline_core.objects.rules.rule import Rule, service_rule
from paceline_core.objects.service_runtime import (
    GPU_PAGE_TOKENS,
    NO_WORDS,
    PAGE_TOKENS,
    WORDS,
    WORDS_ACTIONS,
    WORDS_SETTINGS,
)

_FORMS: Final = {
    "builtin://demo": "builtin://demo",
    "hf://organisation/name": "hf://[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*",
    "pvc://claim/path": "pvc://[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[^ ]+",
    "file:///path": "file:///[^ ]+",
    "s3://bucket/prefix": "s3://[a-z0-9][a-z0-9.-]+(/[^ ]+)?",
    "gs://bucket/prefix": "gs://[a-z0-9][a-z0-9._-]+(/[^ ]+)?",
    "oci://registry/repository:tag": "oci://[a-z0-9.-]+(:[0-9]+)?(/[a-z0-9._-]+)+(:[A-Za-z0-9._-]+|@sha256:[a-f0-9]{64})",
}


def source_rule(path: str, *, builtin: bool) -> Rule:
    """The source at `path` has one of the known forms; only a service's own model may be built in."""
    forms = {form: pattern for form, pattern in _FORMS.items() if builtin or not form.startswith("builtin")}
    pattern = f"({'|'.join(forms.values())})"
    *most, last = forms
    return Rule(
        kind="InferenceService",
        path=path,
        cel=f"self.matches('^{pattern}$')",
        message=f"is no known source: write {', '.join(most)} or {last}",
    )


_LEAST_DISK: Final = "1Mi"
_TOO_MUCH: Final = "64Ti"

_MODEL: Final = (
    source_rule("spec.model.source", builtin=True),
    source_rule("spec.model.tokenizer", builtin=False),
    source_rule("spec.model.adapters[].source", builtin=False),
    source_rule("spec.engine.speculative.draftModel", builtin=False),
    service_rule(
        "spec.model",
        "!has(self.revision) || self.source.startsWith('hf://')",
        "a revision belongs to an hf:// source: remove it, or name the version in the source itself",
        ".revision",
    ),
)

_RUNTIME: Final = (
    service_rule(
        "spec.runtime",
        "!has(self.name) || self.name != 'custom' || has(self.image) || has(self.workloadRef)",
        "runtime custom needs an image, or a workloadRef to an existing Deployment",
        ".image",
    ),
    service_rule(
        "spec.runtime",
        "!has(self.workloadRef) || (!has(self.image) && !has(self.args) && !has(self.env))",
        "paceline never writes to a referenced Deployment: set image, args and env there and remove them here",
        ".workloadRef",
    ),
    service_rule(
        "spec.runtime",
        "!has(self.workloadRef) || (has(self.name) && self.name != 'paceline')",
        "a workloadRef needs a foreign runtime: set runtime.name to what the Deployment runs, like vllm or custom",
        ".name",
    ),
    service_rule(
        "spec.runtime.env[]",
        "has(self.value) != has(self.valueFrom)",
        "needs exactly one of value and valueFrom",
    ),
    service_rule(
        "spec.runtime.env[]",
        "!self.name.startsWith('PACELINE_')",
        "variables that start with PACELINE_ are paceline's own: choose another name",
        ".name",
    ),
    service_rule(
        "spec.runtime.env[].valueFrom",
        "has(self.secretKeyRef) != has(self.configMapKeyRef)",
        "needs exactly one of secretKeyRef and configMapKeyRef",
    ),
)

_ENGINE: Final = (
    service_rule(
        "spec.engine",
        "!has(self.maxSeqs) || !has(self.stepTokens) || self.stepTokens >= self.maxSeqs",
        "every running request needs one token in a step: raise stepTokens to at least maxSeqs, or lower maxSeqs",
        ".stepTokens",
    ),
    service_rule(
        "spec.engine.kvCache.pageTokens",
        f"self in {list(PAGE_TOKENS)}",
        f"must be a power of two from {PAGE_TOKENS[0]} to {PAGE_TOKENS[-1]},"
        f" on GPUs from {GPU_PAGE_TOKENS[0]} to {GPU_PAGE_TOKENS[-1]}, like 64",
    ),
    service_rule(
        "spec.engine.kvCache",
        "!has(self.sinkTokens) || (has(self.attentionWindow) && self.sinkTokens < self.attentionWindow)",
        "sinkTokens needs an attentionWindow that is larger: set attentionWindow, or remove sinkTokens",
        ".sinkTokens",
    ),
    service_rule(
        "spec.engine.kvCache",
        "!has(self.attentionWindow) || !has(self.pageTokens) || self.attentionWindow >= self.pageTokens",
        "an attentionWindow holds at least one page: raise it, or lower pageTokens",
        ".attentionWindow",
    ),
    service_rule(
        "spec.engine.kvCache.diskOffloadBytes",
        f"!quantity(self).isLessThan(quantity('{_LEAST_DISK}')) && quantity(self).isLessThan(quantity('{_TOO_MUCH}'))",
        f"must be from {_LEAST_DISK} to below {_TOO_MUCH}, like 200Gi: change it, or remove it to keep none on disk",
    ),
    service_rule(
        "spec.engine.kvCache",
        "!has(self.diskOffloadBytes)"
        " || (has(self.hostOffloadBytes) && !quantity(self.hostOffloadBytes).isLessThan(quantity('1')))",
        "pages reach the disk through host memory: set hostOffloadBytes, or remove diskOffloadBytes",
        ".diskOffloadBytes",
    ),
    service_rule(
        "spec.engine.kvCache.hostOffloadBytes",
        f"quantity(self).isLessThan(quantity('{_TOO_MUCH}'))",
        f"no machine has {_TOO_MUCH} of memory: write what one replica may have, like 16Gi",
    ),
    service_rule(
        "spec.engine",
        "!has(self.kvCache) || !has(self.kvCache.hostOffloadBytes) || !has(self.prefixCache) || self.prefixCache"
        " || quantity(self.kvCache.hostOffloadBytes).isLessThan(quantity('1'))",
        "pages off the GPU are found by the prefix cache: remove prefixCache, or what offloads pages",
        ".kvCache.hostOffloadBytes",
    ),
    service_rule(
        "spec.engine",
        "!has(self.warmPrefixes) || self.warmPrefixes.size() == 0 || !has(self.prefixCache) || self.prefixCache",
        "warm prefixes are kept by the prefix cache: remove prefixCache, or remove warmPrefixes",
        ".warmPrefixes",
    ),
    service_rule(
        "spec.engine",
        "!has(self.emulate) || !has(self.kvCache) || !has(self.kvCache.diskOffloadBytes)",
        "an emulated engine has no bytes to write: remove diskOffloadBytes, or remove emulate",
        ".kvCache.diskOffloadBytes",
    ),
    service_rule(
        "spec.engine.speculative",
        "(self.method == 'draft') == has(self.draftModel)",
        "draftModel goes with method draft, and only with it: set both, or remove draftModel",
        ".draftModel",
    ),
)


def _words_rule(cel: str, message: str) -> Rule:
    """A rule on the settings of the filter `words`.

    A pattern on a map's value exceeds the server's cost budget, so `launch.unsupported` reports blank values.
    """
    return service_rule("spec.filters[]", f"self.name != '{WORDS}' || ({cel})", message, ".config")


FILTER_RULES: Final = (
    _words_rule(
        "has(self.config) && has(self.config.words) && self.config.words != ''",
        NO_WORDS,
    ),
    _words_rule(
        f"!has(self.config) || !has(self.config.action) || self.config.action in {list(WORDS_ACTIONS)}",
        f"what filter words does is one of two: set config.action to {' or '.join(WORDS_ACTIONS)}, or remove it",
    ),
    _words_rule(
        "!has(self.config) || self.config.size() == "
        + " + ".join(f"(has(self.config.{name}) ? 1 : 0)" for name in WORDS_SETTINGS),
        f"filter words takes no other settings than {', '.join(WORDS_SETTINGS)}: remove the others from config",
    ),
)

PROGRAM_RULES: Final[tuple[Rule, ...]] = (*_MODEL, *_RUNTIME, *_ENGINE, *FILTER_RULES)
