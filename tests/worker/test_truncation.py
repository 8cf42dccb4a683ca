"""`truncation` of `/v1/responses`: which turns go, how many, and what stays."""

import json
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.every import cases
from tests.worker.harness import Rig, running
from tests.worker.scripted_engine import Script

from paceline_core.clock import SystemClock
from paceline_core.wire import PrefixKeys
from paceline_workers.server.http.caller import Caller
from paceline_workers.server.openai.jobs import JobInput
from paceline_workers.server.openai.responses.job import droppable, responses_job
from paceline_workers.server.text.chat import PLAIN, ChatTemplate, Rendering

ROUTE = "/v1/responses"
CONTEXT, OUTPUT, MANY = 256, 100, 64
LAST = {"role": "user", "content": "last?"}
LETTERS = {"s": "system", "d": "developer", "u": "user", "a": "assistant", "t": "tool"}


@cases(
    ("roles", "groups"),
    [
        ("", []),
        ("u", []),
        ("su", []),
        ("uau", ["ua"]),
        ("suaudau", ["ua", "ua"]),
        ("auau", ["a", "ua"]),
        ("uatatau", ["uatata"]),
        ("uuau", ["u", "ua"]),
        ("uauatatat", ["ua", "at", "at"]),
        ("uat", []),
        ("atat", ["at"]),
    ],
)
def test_the_oldest_turns_go_together_with_what_belongs_to_them(roles: str, groups: list[str]) -> None:
    found = droppable([LETTERS[role] for role in roles])
    assert ["".join(roles[place] for place in group) for group in found] == groups
    gone = [place for group in found for place in group]
    assert gone == sorted(set(gone))
    assert not {roles[place] for place in gone} & {"s", "d"}
    if "u" in roles:
        assert roles.rindex("u") not in gone


@pytest.fixture
async def rig(folder: Path) -> AsyncIterator[Rig]:
    async with running(Script(mirror=True, context=CONTEXT), folder=folder) as rig:
        yield rig


def exchanges(count: int) -> list[dict[str, str]]:
    """The newest of many."""
    numbers = range(MANY - count, MANY)
    return [
        {"role": role, "content": f"{role} {number} said so"} for number in numbers for role in ("user", "assistant")
    ]


async def asked(rig: Rig, items: list[dict[str, str]], **fields: Any) -> Any:
    body = {"model": "chat", "max_output_tokens": OUTPUT, "instructions": "be brief", "input": [*items, LAST]}
    return (await rig.http.post(ROUTE, json=body | fields)).json()


async def test_as_few_turns_go_as_must(rig: Rig) -> None:
    """The engine answers with its prompt, so the answer shows what was left of it."""
    refused = await asked(rig, exchanges(MANY))
    assert (refused["error"]["code"], refused["error"]["param"]) == ("context_length_exceeded", "input")
    sizes = [await asked(rig, exchanges(count)) for count in range(MANY // 2)]
    most = max(count for count, answer in enumerate(sizes) if "usage" in answer)
    assert 0 < most < len(sizes) - 1
    answer = await asked(rig, exchanges(MANY), truncation="auto")
    assert answer["output"][0]["content"] == sizes[most]["output"][0]["content"]
    assert (answer["usage"], answer["truncation"]) == (sizes[most]["usage"], "auto")
    short = await asked(rig, exchanges(1), truncation="auto")
    assert short["usage"] == sizes[1]["usage"]


async def test_what_may_not_go_and_is_too_long_is_refused(rig: Rig) -> None:
    long = {"role": "system", "content": "said so " * CONTEXT}
    for items, fields in (([*exchanges(9), long], {}), (exchanges(9), {"max_output_tokens": CONTEXT + 1})):
        refused = await asked(rig, items, truncation="auto", **fields)
        assert (refused["error"]["code"], refused["error"]["param"]) == ("context_length_exceeded", "input")


async def test_a_cut_conversation_is_not_known_by_the_keys_of_the_whole_one(rig: Rig) -> None:
    """They name what it began with, which is gone; a worker would tell its gateway that it has it."""
    started, items = rig.worker.parts.engine.ready(), exchanges(MANY)
    for sent, known in ((items, False), (items[-2:], True)):
        body = {"model": "chat", "max_output_tokens": OUTPUT, "truncation": "auto", "input": [*sent, LAST]}
        caller = Caller("r", prefix=PrefixKeys(2048, ("0" * 16, "1" * 16)))
        job = await responses_job(rig.worker.parts.model, JobInput(json.dumps(body).encode(), caller, started))
        assert bool(job.choices[0].submit.prefix_keys) is known


class CountingTemplate(ChatTemplate):
    """Writes a user's words alone, and counts how often it is asked."""

    looks = 0

    def render(self, messages: Any, tools: Any = (), how: Rendering = PLAIN) -> str:
        """One more."""
        self.looks += 1
        return super().render(messages, tools, how)


async def test_looks_at_a_conversation_grow_with_the_logarithm_of_its_turns(rig: Rig) -> None:
    """Each renders it, which takes milliseconds where it is long."""
    source = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    template = CountingTemplate(source, {}, SystemClock().utc, "test")
    object.__setattr__(rig.worker.parts.model, "template", template)
    tried = template.looks
    answer = await asked(rig, exchanges(MANY), truncation="auto")
    assert "usage" in answer, answer
    assert template.looks - tried <= math.log2(MANY) + 3
    tried = template.looks
    long = [{"role": "system", "content": "said so " * CONTEXT}]
    refused = await asked(rig, [*exchanges(MANY), *long], truncation="auto")
    assert refused["error"]["code"] == "context_length_exceeded"
    assert template.looks - tried == 3, "all, as few as may be, and the refusal"
