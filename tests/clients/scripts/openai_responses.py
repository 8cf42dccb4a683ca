"""OpenAI's own client over /v1/responses: text, a stream, a function and its result, a schema, a long input, errors."""

import json
import sys
from typing import Literal

from openai import BadRequestError, OpenAI
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
client = OpenAI(max_retries=0, timeout=60)
asked = {"model": sys.argv[1], "input": "What is TTFT?", "temperature": 0}
tool = {"type": "function", "name": "weather", "parameters": WEATHER, "strict": True}

whole = client.responses.create(**asked, max_output_tokens=64)
with client.responses.stream(**asked, max_output_tokens=64) as stream:
    kinds = [event.type for event in stream]
    streamed = stream.get_final_response()
forced = client.responses.create(**asked, tools=[tool], tool_choice={"type": "function", "name": "weather"})
[call] = [item for item in forced.output if item.type == "function_call"]
result = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
turns = [{"role": "user", "content": "Weather?"}, *forced.output, result]
after = client.responses.create(**asked | {"input": turns}, tools=[tool], tool_choice="none", max_output_tokens=8)
long = [{"role": "user", "content": f"Question {number}, which is an old one."} for number in range(2000)]
errors = []
for fields in ({"input": long}, {"truncation": "none"}, {"input": [{"type": "item_reference", "id": "msg_1"}]}):
    try:
        client.responses.create(**asked | fields, max_output_tokens=8)
    except BadRequestError as error:
        errors.append([error.code, error.param])
short = client.responses.create(**asked | {"input": long}, truncation="auto", max_output_tokens=8)
parsed = client.responses.parse(**asked, text_format=Judgement, max_output_tokens=64)
print(
    json.dumps(
        {
            "texts": [whole.output_text, streamed.output_text],
            "kinds": kinds,
            "call": call.name,
            "city": json.loads(call.arguments)["city"],
            "after": [after.status in {"completed", "incomplete"}, bool(after.output_text)],
            "cut": [short.truncation, short.usage.input_tokens > 1000],
            "errors": errors,
            "parsed": type(parsed.output_parsed).__name__,
        }
    )
)
