"""All rows, and the refusal that comes from them."""

from collections.abc import Iterable, Mapping
from typing import Any

from paceline_workers.server.openai.body import invalid
from paceline_workers.server.openai.fields.generating import GENERATING_FIELDS
from paceline_workers.server.openai.fields.messages import MESSAGES_FIELDS
from paceline_workers.server.openai.fields.others import OTHER_FIELDS
from paceline_workers.server.openai.fields.responses import RESPONSES_FIELDS
from paceline_workers.server.openai.fields.row import FieldRoute, RequestField, Support
from paceline_workers.server.openai.fields.scoring import SCORING_FIELDS

FIELDS: tuple[RequestField, ...] = (
    *GENERATING_FIELDS,
    *OTHER_FIELDS,
    *SCORING_FIELDS,
    *RESPONSES_FIELDS,
    *MESSAGES_FIELDS,
)

_OTHER_FORMS = frozenset({FieldRoute.RESPONSES, FieldRoute.MESSAGES})
"""Routes that ask for a chat in other words."""
_REPORTS = frozenset({"stream_options", "return_prompt_text"})
"""Fields of a chat that ask for more to be told, and change no answer."""
_CHAT_DEFAULTS: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "min_tokens": (0,),
    "presence_penalty": (0, 0.0),
    "frequency_penalty": (0, 0.0),
    "repetition_penalty": (1, 1.0),
    "length_penalty": (1, 1.0),
    "min_p": (0, 0.0),
    "truncation_side": ("left",),
    "response_format": ({"type": "text"},),
    **dict.fromkeys(("add_generation_prompt", "include_reasoning", "skip_special_tokens"), (True,)),
    **dict.fromkeys(
        (
            "add_special_tokens", "continue_final_message", "early_stopping", "echo", "ignore_eos",
            "include_stop_str_in_output", "logprobs", "return_token_ids", "return_tokens_as_token_ids",
            "use_beam_search",
        ),
        (False,),
    ),
    **dict.fromkeys(("bad_words", "documents", "stop", "stop_token_ids"), ([],)),
    "cache_salt": ("",),
    "logit_bias": ({},),
    "parallel_tool_calls": (True,),
    "top_logprobs": (0,),
}  # fmt: skip
"""What a chat's fields hold where they ask for nothing."""

_ROWS: Mapping[tuple[str, str], RequestField] = {(route, row.name): row for row in FIELDS for route in row.routes}


def field_of(route: str, name: str) -> RequestField | None:
    """The row of a field in a route's body, None if no API known here has it."""
    return _ROWS.get((route, name))


def refuse_unsupported(route: str, unread: Mapping[str, Any]) -> None:
    """Refuse, of the fields that no model reads, the first that would change the answer. Raises RequestError."""
    for name, value in unread.items():
        row = field_of(route, name)
        if row is not None and row.support is Support.REFUSED and not _neutral(row, value):
            raise invalid(row.refusal, name)
        if row is None and route in _OTHER_FORMS:
            _refuse_chats_own(name, value)


def _refuse_chats_own(name: str, value: Any) -> None:
    """Refuse a field of a chat where what is asked for is a chat, but in other words. Raises RequestError."""
    row = field_of(FieldRoute.CHAT, name)
    if row is None or row.support is Support.IGNORED or name in _REPORTS:
        return
    neutral = _CHAT_DEFAULTS.get(name, ()) if row.support is Support.SERVED else row.neutral
    if not _among(value, neutral):
        raise invalid(f"`{name}` is for /v1/chat/completions, and would not be followed here; leave it out.", name)


def _neutral(row: RequestField, value: Any) -> bool:
    return _among(value, row.neutral)


def _among(value: Any, neutral: Iterable[Any]) -> bool:
    """0 and 1 are not taken for false and true."""
    return any(type(value) is type(one) and value == one for one in neutral)
