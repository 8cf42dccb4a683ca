"""The size of a request's prompt: the bytes of its texts, the ids that it lists, the messages around them.

Only what a chat template or a tokenizer reads is measured: no JSON syntax, no whitespace between fields, no field that
the route does not read. So padding a body changes neither its expected prompt nor what is learned from it. A part of a
message that is no text (an image) counts a fixed number of tokens: its bytes say nothing about them. On a route with
unknown fields the whole body counts as text.

It also lists the paths whose answers hold no generated tokens, by the names that OpenAI and vLLM have for them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

EMBEDDINGS: Final = "/v1/embeddings"
SCORE: Final = ("/v1/score", "/score")
RERANK: Final = ("/v1/rerank", "/v2/rerank", "/rerank")
TOKENIZERS: Final = ("/tokenize", "/detokenize", "/v1/messages/count_tokens")
WITHOUT_OUTPUT: Final = frozenset({EMBEDDINGS, *SCORE, *RERANK, *TOKENIZERS})
TEXT_LISTS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(SCORE, ("text_1", "text_2", "queries", "documents", "items", "data_1", "data_2")),
    **dict.fromkeys(RERANK, ("query", "documents")),
}
"""Fields that hold texts, each a separate prompt."""

MESSAGE_TOKENS: Final = 5
"""Tokens that a chat template writes around a message, as Llama 3 and ChatML do."""
PART_TOKENS: Final = 1024
"""Tokens of a part that is no text."""
_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "/v1/chat/completions": ("messages", "tools", "functions", "documents", "chat_template_kwargs"),
    "/v1/completions": ("prompt", "suffix"),
    EMBEDDINGS: ("input",),
    "/v1/messages": ("system_blocks", "messages", "tools", "chat_template_kwargs"),
    "/v1/responses": ("instructions", "items", "tools", "chat_template_kwargs"),
}
_NAMES: Final = {"items": "input", "system_blocks": "system"}
"""Field names in the body, where this table's name differs because another route uses that field differently."""
_TEXTS: Final = (
    "content", "name", "reasoning_content", "reasoning", "refusal", "tool_call_id", "arguments", "output", "summary"
)  # fmt: skip
_WRITTEN: Final = frozenset({"tools", "functions", "documents", "chat_template_kwargs"})
"""Fields that templates write as JSON."""


class PromptSize(NamedTuple):
    """`text`: UTF-8 bytes; `tokens`: ids listed, and other parts counted in tokens; `prompts`: their number.

    `unbound`: the request brings its own chat template, which may repeat anything. `truncated`: the worker may cut the
    prompt to a length, so its tokens say nothing about its bytes.
    """

    text: int = 0
    tokens: int = 0
    prompts: int = 1
    unbound: bool = False
    truncated: bool = False


def measure(data: Mapping[str, Any], path: str) -> PromptSize:
    """The size of the prompt in a parsed body for this path."""
    truncated = data.get("truncate_prompt_tokens") is not None or data.get("truncation") == "auto"
    found = _measure(data, path)
    return found._replace(truncated=True) if truncated else found


def _measure(data: Mapping[str, Any], path: str) -> PromptSize:
    if path in TEXT_LISTS:
        return _texts([data.get(field) for field in TEXT_LISTS[path]])
    fields = _FIELDS.get(path)
    if fields is None:
        return PromptSize(len(orjson.dumps(data)))
    text = tokens = 0
    prompts = 1
    for field in fields:
        value = data.get(_NAMES.get(field, field))
        if value is None or (field == "tools" and data.get("tool_choice") == "none"):
            continue
        if field in _WRITTEN:
            text += len(orjson.dumps(value))
            continue
        turns = field == "messages" or (field == "items" and isinstance(value, list))
        blocks = field == "system_blocks" and isinstance(value, list)
        found = _messages(value) if turns else _parts(value) if blocks else _inputs(value)
        text, tokens, prompts = text + found.text, tokens + found.tokens, max(prompts, found.prompts)
    return PromptSize(text, tokens, prompts, "messages" in fields and data.get("chat_template") is not None)


def _inputs(value: Any) -> PromptSize:
    """A text, a list of ids, or a list of either."""
    if isinstance(value, str):
        return PromptSize(_bytes(value))
    if not isinstance(value, list):
        return PromptSize()
    kinds = set(map(type, value))
    if kinds <= {int}:
        return PromptSize(tokens=len(value))
    if not kinds & {str, list}:
        return PromptSize(prompts=len(value))
    text = sum(map(_bytes, [one for one in value if type(one) is str]))
    tokens = sum(map(len, [one for one in value if type(one) is list]))
    return PromptSize(text, tokens, len(value))


def _texts(fields: Sequence[Any]) -> PromptSize:
    """Lists of texts, or of objects with a `text`, or a single one of these."""
    text = count = 0
    for value in fields:
        several = value if isinstance(value, list) else [] if value is None else [value]
        words = [one.get("text") if type(one) is dict else one for one in several]
        text += sum(map(_bytes, [one for one in words if type(one) is str]))
        count += len(several)
    return PromptSize(text, prompts=max(count, 1))


def _messages(value: Any) -> PromptSize:
    if not isinstance(value, list):
        return PromptSize()
    text, tokens = 0, MESSAGE_TOKENS * len(value)
    for message in value:
        if not isinstance(message, dict):
            continue
        for field in _TEXTS:
            content = message.get(field)
            if isinstance(content, str):
                text += _bytes(content)
            elif isinstance(content, list):
                found = _parts(content)
                text, tokens = text + found.text, tokens + found.tokens
        if calls := message.get("tool_calls"):
            text += len(orjson.dumps(calls))
    return PromptSize(text, tokens)


def _parts(parts: Sequence[Any]) -> PromptSize:
    text = tokens = 0
    for part in parts:
        words = _words(part) if isinstance(part, dict) else part
        if isinstance(words, str):
            text += _bytes(words)
        elif isinstance(words, list):
            found = _parts(words)
            text, tokens = text + found.text, tokens + found.tokens
        else:
            tokens += PART_TOKENS
    return PromptSize(text, tokens)


def _words(part: Mapping[str, Any]) -> Any:
    """The part that a template writes: a text, or parts within it; None for a part that is no text."""
    match part.get("type"):
        case "thinking":
            return part.get("thinking")
        case "tool_use":
            return orjson.dumps([part.get("name"), part.get("input")]).decode()
        case "tool_result":
            return part.get("content", "")
    return part.get("text")


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
