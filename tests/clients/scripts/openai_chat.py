"""OpenAI's own client: a chat, a stream, a forced call, an answer parsed by its schema, vectors."""

import json
import sys
from typing import Literal

from openai import OpenAI
from pydantic import BaseModel

MESSAGES = [{"role": "user", "content": "What is TTFT?"}]
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Oslo", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}


class Judgement(BaseModel):
    """What the answer is parsed to."""

    verdict: Literal["kept", "broken"]
    count: Literal[1, 2, 3]


client = OpenAI(max_retries=0, timeout=60)
model = sys.argv[1]
tool = {"type": "function", "function": {"name": "weather", "parameters": WEATHER, "strict": True}}

named = {"type": "function", "function": {"name": "weather"}}

answer = client.chat.completions.create(model=model, messages=MESSAGES, max_tokens=8, temperature=0)
events = client.chat.completions.create(
    model=model,
    messages=MESSAGES,
    max_tokens=8,
    temperature=0,
    stream=True,
    stream_options={"include_usage": True},
)
chunks = list(events)
forced = client.chat.completions.create(model=model, messages=MESSAGES, tools=[tool], tool_choice=named)
[call] = forced.choices[0].message.tool_calls
parsed = client.chat.completions.parse(model=model, messages=MESSAGES, response_format=Judgement, max_tokens=64)
vector = client.embeddings.create(model=model, input="What is TTFT?").data[0].embedding
print(
    json.dumps(
        {
            "models": [one.id for one in client.models.list()],
            "completion_tokens": [answer.usage.completion_tokens, chunks[-1].usage.completion_tokens],
            "texts": [
                answer.choices[0].message.content,
                "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices),
            ],
            "call": call.function.name,
            "city": json.loads(call.function.arguments)["city"],
            "parsed": type(parsed.choices[0].message.parsed).__name__,
            "vector": len(vector),
        }
    )
)
