"""Which form a model writes, told by its chat template: the form in which it shows the model an earlier call.

The template is rendered over a conversation with one call, and the words before the call's argument tell the form. The
markers alone would not: templates of several families write other things between the same tags.
Known hole: a template that does not show earlier calls at all has no form, and its model is offered no tools.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paceline_core.errors import RequestError
from paceline_workers.server.tools.calls import ToolCallFormat
from paceline_workers.server.tools.hermes import Hermes
from paceline_workers.server.tools.llama import Llama
from paceline_workers.server.tools.mistral import Mistral

Render = Callable[[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]], str]
_NAME, _ID, _VALUE = "paceline_probe", "paceline1", "paceline probes its template"
_PROPERTIES = {"place": {"type": "string", "description": "A place."}}
_PARAMETERS = {"type": "object", "properties": _PROPERTIES, "required": ["place"]}
PROBE_TOOL: Mapping[str, Any] = {
    "type": "function",
    "function": {"name": _NAME, "description": "Probe.", "parameters": _PARAMETERS},
}
_CALL = {"id": _ID, "type": "function", "function": {"name": _NAME, "arguments": {"place": _VALUE}}}
_PROBE = (
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "", "tool_calls": [_CALL]},
    {"role": "tool", "content": "{}", "name": _NAME, "tool_call_id": _ID},
)
_ARGUMENT = r'\{\s*"place":\s*"$'
_OBJECT = rf'\{{\s*"name":\s*"{_NAME}",\s*"%s":\s*{_ARGUMENT}'
_FORMS: tuple[tuple[re.Pattern[str], ToolCallFormat], ...] = tuple(
    (re.compile(pattern), form)
    for pattern, form in (
        (r"<tool_call>\s*" + _OBJECT % "arguments", Hermes()),
        (r"\[TOOL_CALLS\]\s*\[\s*" + _OBJECT % "arguments", Mistral()),
        (rf"\[TOOL_CALLS\]{_NAME}(?:\[CALL_ID\]{_ID})?(?:\[ARGS\])?\s*{_ARGUMENT}", Mistral(named=True)),
        (r"(?:<\|python_tag\|>|<\|end_header_id\|>)\s*" + _OBJECT % "parameters", Llama()),
    )
)


def format_of(render: Render) -> ToolCallFormat | None:
    """None for a template that takes no tools, or shows calls in a form that is not known here."""
    try:
        shown = render(_PROBE, [PROBE_TOOL])
    except RequestError:
        return None
    before, found, _ = shown.rpartition(_VALUE)
    return next((form for pattern, form in _FORMS if pattern.search(before)), None) if found else None
