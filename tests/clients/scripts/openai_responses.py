"""OpenAI's own client over /v1/responses: text, a stream, a named function, an answer parsed by its schema."""

import json
import sys
from typing import Literal

from openai import OpenAI
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

whole = client.responses.create(**asked, max_output_tokens=16)
with client.responses.stream(**asked, max_output_tokens=16) as stream:
    kinds = [event.type for event in stream]
    streamed = stream.get_final_response()
forced = client.responses.create(**asked, tools=[tool], tool_choice={"type": "function", "name": "weather"})
[call] = [item for item in forced.output if item.type == "function_call"]
parsed = client.responses.parse(**asked, text_format=Judgement, max_output_tokens=64)
print(
    json.dumps(
        {
            "texts": [whole.output_text, streamed.output_text],
            "kinds": kinds,
            "call": call.name,
            "city": json.loads(call.arguments)["city"],
            "parsed": type(parsed.output_parsed).__name__,
        }
    )
)
