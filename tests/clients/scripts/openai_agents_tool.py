"""OpenAI's Agents SDK as it comes, over /v1/responses: a function tool is called, and its result goes back."""

import json
import sys
from typing import Literal

from agents import Agent, ModelSettings, Runner, function_tool, set_tracing_disabled

set_tracing_disabled(True)
calls = []


@function_tool
def weather(city: Literal["Oslo", "Rome"]) -> str:
    """The weather in a city."""
    calls.append(city)
    return f"rain in {city}"


agent = Agent(
    name="forecaster",
    instructions="Answer in one sentence.",
    model=sys.argv[1],
    tools=[weather],
    model_settings=ModelSettings(tool_choice="weather", temperature=0, max_tokens=64),
)
run = Runner.run_sync(agent, "What is the weather in Oslo?", max_turns=3)
kinds = [item.type for item in run.new_items]
print(json.dumps({"calls": len(calls), "items": kinds, "output": type(run.final_output).__name__}))
