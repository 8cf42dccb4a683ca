"""pydantic-ai: native structured output beside a function tool, the call first and the output behind it.

A model picks what it likes where both may follow. `opening` is the token with which a call begins, and the bias makes
the model choose it. The tool is offered once, so the second answer is the output, whose schema has no place for it.
"""

import json
import sys
from typing import Literal

from pydantic import BaseModel, ConfigDict
from pydantic_ai import Agent, NativeOutput, RunContext
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.tools import ToolDefinition

model, opening = sys.argv[1:]


class Judgement(BaseModel):
    """Whether a promise was kept."""

    model_config = ConfigDict(extra="forbid")

    verdict: Literal["kept", "broken"]


async def once(context: RunContext[None], tool: ToolDefinition) -> ToolDefinition | None:
    """Offer the tool to the first request alone."""
    return tool if context.run_step == 1 else None


agent = Agent(
    OpenAIChatModel(model),
    output_type=NativeOutput(Judgement),
    model_settings={"max_tokens": 128, "temperature": 0, "timeout": 60, "logit_bias": {opening: 100}},
    retries=0,
)
calls = []


@agent.tool_plain(prepare=once)
def weather(city: Literal["Oslo", "Rome"]) -> str:
    """The weather in a city."""
    calls.append(city)
    return f"rain in {city}"


run = agent.run_sync("Was the promise of good weather kept?")
print(json.dumps({"output": type(run.output).__name__, "calls": len(calls), "requests": run.usage.requests}))
