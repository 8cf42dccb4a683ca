"""Separates a model's reasoning from its text by the markers around it, also in structured output. Pure.

The chat template names the markers that a model writes. The prompt's end shows where the reasoning begins: a template
may open it (DeepSeek R1), close it at once (Qwen 3 without thinking), or leave both to the model, whose answer then
begins with the opening marker or has no reasoning. Text after the closing marker is content, whatever it holds. Only
the markers and blanks before the opening one are dropped.
Known holes: an answer with a closing marker but no opening one is content. Channels (gpt-oss) and reasoning that ends
with a phrase (Apriel) are not separated.

Structured output after reasoning: the grammar of the answer begins where the reasoning has ended. That grammar is Lark
of the kind `calls:`, like that of `tools.grammar`, because it may name special tokens. So it admits no Lark that a
client wrote; a choice among texts, which consists of plain literals, is allowed.
"""

import json
import re
from dataclasses import dataclass
from enum import StrEnum

from paceline_workers.server.tools.grammar import Special, rule_of, spelled
from paceline_workers.server.tools.parser import marked

_MARKERS = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<mm:think>", "</mm:think>"),
)


class ReasoningStart(StrEnum):
    """Where a text begins: before optional reasoning, within reasoning, or after it."""

    UNKNOWN = "unknown"
    INSIDE = "inside"
    OUTSIDE = "outside"


@dataclass(frozen=True, slots=True)
class ReasoningMarkers:
    """The markers of a model's reasoning, and where one answer's text begins."""

    opening: str
    closing: str
    begin: ReasoningStart = ReasoningStart.UNKNOWN

    @property
    def markers(self) -> tuple[str, str]:
        """Both markers; they may be special tokens."""
        return self.opening, self.closing


def reasoning_of(template: str) -> ReasoningMarkers | None:
    """The markers that a chat template's source contains; None if there are none."""
    found = (pair for pair in _MARKERS if pair[0] in template and pair[1] in template)
    return next((ReasoningMarkers(*pair) for pair in found), None)


def begun(markers: ReasoningMarkers, prompt: str, continued: str | None = None) -> ReasoningMarkers | None:
    """How an answer to `prompt` begins, None if it has no reasoning. `continued`: the message that it continues."""
    text = (prompt if continued is None else continued).rstrip()
    opened, closed = text.rfind(markers.opening), text.rfind(markers.closing)
    if text.endswith(markers.opening) or (continued is not None and opened > closed):
        return ReasoningMarkers(*markers.markers, ReasoningStart.INSIDE)
    if text.endswith(markers.closing) or continued:
        return None
    return markers


class ReasoningSplitter:
    """Takes text, returns reasoning and content. The result does not depend on how the text was split into pieces.

    `state`: INSIDE once the opening marker is complete, OUTSIDE when no reasoning can follow.
    """

    def __init__(self, reasoning: ReasoningMarkers | None) -> None:
        self.state = ReasoningStart.OUTSIDE if reasoning is None else reasoning.begin
        self._opening, self._closing = ("", "") if reasoning is None else reasoning.markers
        self._held = ""

    def feed(self, text: str) -> tuple[str, str]:
        """The text that is now certain to be reasoning, and that certain to be content."""
        self._held += text
        if self.state is ReasoningStart.UNKNOWN:
            words = self._held.lstrip()
            if words.startswith(self._opening):
                self.state, self._held = ReasoningStart.INSIDE, words[len(self._opening) :]
            elif self._opening.startswith(words):
                return "", ""
            else:
                self.state = ReasoningStart.OUTSIDE
        reasoning = ""
        if self.state is ReasoningStart.INSIDE:
            found = marked(self._held, self._closing, final=False)
            reasoning = self._held[: found.content]
            if found.start is None:
                self._held = self._held[found.content :]
                return reasoning, ""
            self.state, self._held = ReasoningStart.OUTSIDE, self._held[found.start :]
        content, self._held = self._held, ""
        return reasoning, content

    def flush(self) -> tuple[str, str]:
        """The text has ended: the rest of both."""
        held, self._held = self._held, ""
        return (held, "") if self.state is ReasoningStart.INSIDE else ("", held)


_LITERALS = re.compile(r'lark:start: ("(?:[^"\\]|\\.)*"(?: \| "(?:[^"\\]|\\.)*")*)')
_CALLS = "calls:start: "
_ANYTHING = r"/(.|\n)*/"


def after_reasoning(answer: str, reasoning: ReasoningMarkers, special: Special) -> str:
    """The grammar of `answer` after reasoning, which is any text without the closing marker.

    Raises ValueError if `answer` is Lark that a client wrote.
    """
    opens = (
        "thought" if reasoning.begin is ReasoningStart.INSIDE else f"({spelled(reasoning.opening, special)} thought)?"
    )
    thought = f"thought: inner {spelled(reasoning.closing, special)}\ninner: {_ANYTHING}"
    if special(reasoning.closing) is None:
        thought = f"thought[suffix={json.dumps(reasoning.closing)}]: {_ANYTHING}"
    return "calls:" + "\n".join([f"start: {opens} told", thought, f"told: {_answer_rule(answer)}"])


def _answer_rule(answer: str) -> str:
    """The body of the answer's rule, and the rules that it refers to."""
    if answer.startswith(_CALLS):
        return answer.removeprefix(_CALLS)
    literals = _LITERALS.fullmatch(answer)
    rule = literals[1] if literals else rule_of(answer)
    if rule is None:
        words = "a grammar of your own cannot begin behind reasoning"
        raise ValueError(f'{words}; send `chat_template_kwargs`: {{"enable_thinking": false}} if the model knows it')
    return rule
