"""Instructor over OpenAI's client: a pydantic model by a forced call, by a JSON schema, and piece by piece."""

import json
import sys
from typing import Literal

import instructor
from openai import OpenAI
from pydantic import BaseModel, ConfigDict


class Judgement(BaseModel):
    """Whether a promise was kept, and how often."""

    model_config = ConfigDict(extra="forbid")

    verdict: Literal["kept", "broken"]
    count: Literal[1, 2, 3]


asked = {
    "model": sys.argv[1],
    "messages": [{"role": "user", "content": "Was the promise kept?"}],
    "max_tokens": 64,
    "temperature": 0,
    "max_retries": 0,
}
found = {}
for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
    client = instructor.from_openai(OpenAI(max_retries=0, timeout=60), mode=mode)
    judgement, raw = client.chat.completions.create_with_completion(response_model=Judgement, **asked)
    found[mode.value] = [type(judgement).__name__, raw.choices[0].finish_reason]
client = instructor.from_openai(OpenAI(max_retries=0, timeout=60), mode=instructor.Mode.JSON_SCHEMA)
pieces = list(client.chat.completions.create_partial(response_model=Judgement, **asked))
print(json.dumps({"found": found, "partial": pieces[-1].verdict in {"kept", "broken"}}))
