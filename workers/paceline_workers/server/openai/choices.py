"""One answer of a request: what the engine gets for it, and how its tokens become text and events."""

from dataclasses import dataclass

from paceline_workers.messages import Submit
from paceline_workers.server.openai.answers import ResponseShape
from paceline_workers.server.output import TextOutput


@dataclass(frozen=True, slots=True)
class Choice:
    """`finish`: it had ended in an earlier life of its stream, and why; `told`: the client knows.

    `opened`: the client has the events that come before its text.
    """

    submit: Submit
    output: TextOutput
    shape: ResponseShape
    finish: str = ""
    told: bool = False
    opened: bool = False
