"""The fields of a request's body that the gateway reads. The worker checks all others, which pass unchanged."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from paceline_core.errors import Code, RequestError
from paceline_core.json_limits import CHOICES_PER_PROMPT, check_shape, not_json, too_deep, too_many_choices
from paceline_gateway.request.prompt_size import TEXT_LISTS, WITHOUT_OUTPUT

MAX_INT64 = (1 << 63) - 1
"""JSON readers disagree about larger numbers."""
TEXTS = 2048
"""The longest list of texts to score, as at a worker."""
_USUAL = ("max_completion_tokens", "max_tokens")
_LIMITS: Mapping[str, tuple[str, ...]] = {
    "/v1/responses": ("max_output_tokens",),
    "/v1/messages": ("max_tokens",),
    **dict.fromkeys(WITHOUT_OUTPUT, ()),
}
"""Fields that limit the output, the first present one counts; other routes have `_USUAL`."""
_SCORED = frozenset({"", "/v1/completions"})
"""Routes where a limit of 0 requests only the prompt's scores."""
_MANY = frozenset({"", "/v1/chat/completions", "/v1/completions"})
"""Routes that give several answers to a request; only one of them takes several prompts."""
_CHAT = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class ParsedBody:
    """`max_tokens` is None where the request sets no limit; `limit_field` names the field. `data` is the whole body.

    `choices` counts all answers: `n` for each prompt. `min_tokens` is the least number of tokens of each.
    """

    model: str
    stream: bool
    max_tokens: int | None
    limit_field: str
    data: Mapping[str, Any] = field(default_factory=dict, compare=False)
    choices: int = 1
    min_tokens: int = 0


def parse(body: bytes, path: str = "") -> ParsedBody:
    """Read model, stream and the limit of output tokens. Raises RequestError naming the field."""
    check_shape(body)
    try:
        data: Any = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        if error.msg.startswith("depth limit"):
            raise too_deep() from None
        raise not_json(body, f" (line {error.lineno}, column {error.colno}): {error.msg}") from None
    if not isinstance(data, dict):
        raise RequestError(Code.INVALID_REQUEST, "The body must be a JSON object.")
    model, stream = data.get("model"), data.get("stream")
    if not isinstance(model, str) or not model:
        raise _wrong("model", "must be the name of a model; GET /v1/models lists those you may use")
    for name in TEXT_LISTS.get(path, ()):
        if isinstance(texts := data.get(name), list) and len(texts) > TEXTS:
            raise _wrong(name, f"holds {len(texts)} texts; send at most {TEXTS} at a time")
    fields = _LIMITS.get(path, _USUAL)
    if not fields:
        return ParsedBody(model, False, None, "", data)
    if stream is not None and not isinstance(stream, bool):
        raise _wrong("stream", "must be true or false")
    field = next((name for name in fields if data.get(name) is not None), fields[-1])
    limit = _whole(field, data.get(field), least=0 if path in _SCORED else 1)
    choices = _choices(data, path) if path in _MANY else 1
    least = MAX_INT64 if data.get("ignore_eos") is True else max(_number(data.get("min_tokens")), 0)
    return ParsedBody(model, bool(stream), limit, field, data, choices, least)


def limit_under(asked: ParsedBody, most: int) -> int:
    """The limit of output tokens under a cap; never below the request's own `min_tokens`, which the worker refuses."""
    return max(most, _number(asked.data.get("min_tokens")))


def limit_tokens(body: bytes, field: str, limit: int) -> bytes:
    """The same body with another limit of output tokens."""
    return orjson.dumps(orjson.loads(body) | {field: limit})


def rename_model(body: bytes, old: str, new: str) -> bytes:
    """The same body with another model name: spliced where that is unambiguous, else serialized again."""
    pattern = re.compile(rb'("model"\s*:\s*)' + re.escape(orjson.dumps(old)))
    renamed, places = pattern.subn(lambda match: match[1] + orjson.dumps(new), body, count=2)
    if places == 1:
        return renamed
    return orjson.dumps(orjson.loads(body) | {"model": new})


def _choices(data: dict[str, Any], path: str) -> int:
    """The number of answers requested. Raises RequestError."""
    each = max(_count(data, "n"), _count(data, "best_of"))
    prompt = None if path == _CHAT else data.get("prompt")
    if not (isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list)):
        return each
    if why := too_many_choices(len(prompt), each):
        raise RequestError(Code.INVALID_REQUEST, why, param="prompt")
    return each * len(prompt)


def _count(data: dict[str, Any], field: str) -> int:
    """An invalid count is 1, and the worker refuses it; one that is too large is refused here."""
    asked = max(_number(data.get(field)), 1)
    if asked > CHOICES_PER_PROMPT:
        raise _wrong(field, f"must be a whole number from 1 to {CHOICES_PER_PROMPT}")
    return asked


def _number(value: Any) -> int:
    """At most MAX_INT64; 0 for a value that is no number. Integers too large for the parser are read as floats."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(min(value, MAX_INT64))


def _whole(field: str, value: Any, *, least: int) -> int | None:
    """A limit of output tokens; the class decides how many are too many. The worker refuses 0."""
    if value is None:
        return None
    whole = isinstance(value, int) or (isinstance(value, float) and value > MAX_INT64)
    if isinstance(value, bool) or not whole or value < 0:
        raise _wrong(field, f"must be a whole number, {least} or more")
    return int(min(value, MAX_INT64))


def _wrong(field: str, message: str) -> RequestError:
    return RequestError(Code.INVALID_REQUEST, f"`{field}` {message}.", param=field)
