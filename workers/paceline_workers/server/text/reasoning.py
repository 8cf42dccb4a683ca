"""A model's reasoning, split off its text by the markers around it. Pure.

Which markers a model writes is told by its chat template, which names them. Where the reasoning begins is told by the
prompt's end: a template may open it (DeepSeek R1), close it at once (Qwen 3 without thinking), or leave both to the
model, whose answer then begins with the opening marker or has no reasoning. What follows the closing marker is content,
whatever it holds. No character is dropped but the markers and blanks before the opening one.
Known holes: an answer that closes what nothing opened is content. Channels (gpt-oss) and reasoning that ends with a
phrase (Apriel) are not split.

Structured output behind reasoning: the grammar of the answer begins where the reasoning has ended. Pure.

The text is Lark of the kind `calls:`, like that of `tools.alternative`, since special tokens may be named in it. So no
Lark of a client's own gets in; a choice among texts, which is plain literals, does.
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
    """Where a text begins: before reasoning that may or may not come, within it, or behind it."""

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
        """Both; they may be special tokens."""
        return self.opening, self.closing


def reasoning_of(template: str) -> ReasoningMarkers | None:
    """The markers that a chat template's source names; None where it names none."""
    found = (pair for pair in _MARKERS if pair[0] in template and pair[1] in template)
    return next((ReasoningMarkers(*pair) for pair in found), None)


def begun(markers: ReasoningMarkers, prompt: str, continued: str | None = None) -> ReasoningMarkers | None:
    """How an answer to `prompt` begins, None where it has no reasoning. `continued`: the message that it goes on."""
    text = (prompt if continued is None else continued).rstrip()
    opened, closed = text.rfind(markers.opening), text.rfind(markers.closing)
    if text.endswith(markers.opening) or (continued is not None and opened > closed):
        return ReasoningMarkers(*markers.markers, ReasoningStart.INSIDE)
    if text.endswith(markers.closing) or continued:
        return None
    return markers


class ReasoningSplitter:
    """Feed text; take reasoning and content out. The result does not depend on how the text was cut into pieces.

    `state`: INSIDE once the opening marker is complete, OUTSIDE where no reasoning follows.
    """

    def __init__(self, reasoning: ReasoningMarkers | None) -> None:
        self.state = ReasoningStart.OUTSIDE if reasoning is None else reasoning.begin
        self._opening, self._closing = ("", "") if reasoning is None else reasoning.markers
        self._held = ""

    def feed(self, text: str) -> tuple[str, str]:
        """What is certain to be reasoning now, and what is certain to be content."""
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
        """The text is over: the rest of both."""
        held, self._held = self._held, ""
        return (held, "") if self.state is ReasoningStart.INSIDE else ("", held)


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
    thought = f"thought: inner {spelled(reasoning.closing, special)}\ninner: {_ANYTHING}"
    if special(reasoning.closing) is None:
        thought = f"thought[suffix={json.dumps(reasoning.closing)}]: {_ANYTHING}"
    return "calls:" + "\n".join([f"start: {opens} told", thought, f"told: {_answer_rule(answer)}"])


def _answer_rule(answer: str) -> str:
    """What stands behind the name of the answer's rule, and the rules that it names."""
    if answer.startswith(_CALLS):
        return answer.removeprefix(_CALLS)
    literals = _LITERALS.fullmatch(answer)
    rule = literals[1] if literals else rule_of(answer)
    if rule is None:
        words = "a grammar of your own cannot begin behind reasoning"
        raise ValueError(f'{words}; send `chat_template_kwargs`: {{"enable_thinking": false}} if the model knows it')
    return rule
