"""LiteLLM's `completion`: whole, streamed, with a forced call."""

import json
import os
import sys

import litellm

where = {
    "model": f"openai/{sys.argv[1]}",
    "api_base": os.environ["OPENAI_BASE_URL"],
    "api_key": os.environ["OPENAI_API_KEY"],
    "messages": [{"role": "user", "content": "What is TTFT?"}],
    "temperature": 0,
    "timeout": 60,
    "num_retries": 0,
}
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Oslo", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}
tools = [{"type": "function", "function": {"name": "weather", "parameters": WEATHER}}]
named = {"type": "function", "function": {"name": "weather"}}
answer = litellm.completion(**where, max_tokens=8)
chunks = list(litellm.completion(**where, max_tokens=8, stream=True))
rebuilt = litellm.stream_chunk_builder(chunks)
forced = litellm.completion(**where, tools=tools, tool_choice=named, max_tokens=64)
[call] = forced.choices[0].message.tool_calls
print(
    json.dumps(
        {
            "completion_tokens": answer.usage.completion_tokens,
            "texts": [one.choices[0].message.content for one in (answer, rebuilt)],
            "call": call.function.name,
            "city": json.loads(call.function.arguments)["city"],
        }
    )
)
