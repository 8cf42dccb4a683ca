"""Anthropic's own client over /v1/messages: text, a stream, a named tool and its result, a schema, counts, errors."""

import json
import sys
from typing import Literal

from anthropic import Anthropic, APIStatusError
from pydantic import BaseModel


class Judgement(BaseModel):
    """What the answer is parsed to."""

    verdict: Literal["kept", "broken"]


WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Oslo", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}
client = Anthropic(max_retries=0, timeout=60)
question = [{"role": "user", "content": "What is TTFT?"}]
prompt = {"model": sys.argv[1], "messages": question, "system": [{"type": "text", "text": "Be brief."}]}
asked = {**prompt, "max_tokens": 16, "extra_body": {"temperature": 0}}
tool = {"name": "weather", "input_schema": WEATHER}

whole = client.messages.create(**asked)
kinds = [event.type for event in client.messages.create(**asked, stream=True)]
with client.messages.stream(**asked) as stream:
    streamed = stream.get_final_message()
counted = client.messages.count_tokens(**prompt)

forced = {"tools": [tool], "tool_choice": {"type": "tool", "name": "weather"}}
with client.messages.stream(**asked | {"max_tokens": 64}, **forced) as stream:
    called = stream.get_final_message()
[call] = [block for block in called.content if block.type == "tool_use"]
result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "rain"}]}
turns = [*question, {"role": "assistant", "content": called.content}, {"role": "user", "content": [result]}]
after = client.messages.create(**asked | {"messages": turns}, tools=[tool])
parsed = client.messages.parse(**asked | {"max_tokens": 64}, output_format=Judgement)

errors = []
for own, fields in (
    (client.with_options(api_key="pl_wrong"), {}),
    (client, {"model": "other"}),
    (client, {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}),
):
    try:
        own.messages.create(**asked | fields)
    except APIStatusError as error:
        errors.append(f"{type(error).__name__} {error.body['error']['type']}")

print(
    json.dumps(
        {
            "answers": [[[block.text for block in one.content], one.stop_reason] for one in (whole, streamed)],
            "kinds": list(dict.fromkeys(kinds)),
            "input_tokens": whole.usage.input_tokens,
            "counted": counted.input_tokens,
            "call": call.name,
            "city": call.input["city"],
            "after": after.role,
            "parsed": type(parsed.parsed_output).__name__,
            "errors": errors,
        }
    )
)
