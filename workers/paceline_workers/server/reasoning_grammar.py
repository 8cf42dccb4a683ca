"""Structured output behind reasoning: the grammar of the answer begins where the reasoning has ended. Pure.

The text is Lark of the kind `calls:`, like that of `tools.alternative`, since special tokens may be named in it. So no
Lark of a client's own gets in; a choice among texts, which is plain literals, does.
"""

import json
import re

from paceline_workers.server.reasoning import ReasoningMarkers, ReasoningStart
from paceline_workers.server.tools.alternative import Special, rule_of, spelled

_LITERALS = re.compile(r'lark:start: ("(?:[^"\\]|\\.)*"(?: \| "(?:[^"\\]|\\.)*")*)')
_CALLS = "calls:start: "
_ANYTHING = r"/(.|\n)*/"


def after_reasoning(answer: str, reasoning: ReasoningMarkers, special: Special) -> str:
    """The grammar of `answer` behind reasoning, which is any text without the closing marker.

    Raises ValueError where `answer` is Lark of a client's own.
    """
    opens = (
        "thought" if reasoning.begin is ReasoningStart.INSIDE else f"({spelled(reasoning.opening, special)} thought)?"
    )
    return "calls:" + "\n".join(
        [f"start: {opens} told", _thought(reasoning.closing, special), f"told: {_told(answer)}"]
    )


def _thought(closing: str, special: Special) -> str:
    if special(closing) is None:
        return f"thought[suffix={json.dumps(closing)}]: {_ANYTHING}"
    return f"thought: inner {spelled(closing, special)}\ninner: {_ANYTHING}"


def _told(answer: str) -> str:
    """What stands behind the name of the answer's rule, and the rules that it names."""
    if answer.startswith(_CALLS):
        return answer.removeprefix(_CALLS)
    literals = _LITERALS.fullmatch(answer)
    rule = literals[1] if literals else rule_of(answer)
    if rule is None:
        words = "a grammar of your own cannot begin behind reasoning"
        raise ValueError(f'{words}; send `chat_template_kwargs`: {{"enable_thinking": false}} if the model knows it')
    return rule
