"""Where weights may come from: one rule for each field that holds a source."""

from re import fullmatch
from typing import Final

from paceline_core.objects.rules.rule import Rule

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
        holds=lambda source: fullmatch(pattern, source) is not None,
    )
