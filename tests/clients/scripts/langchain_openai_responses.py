"""LangChain's ChatOpenAI over /v1/responses: `bind_tools` whole and streamed, the tool's answer, structured output."""

import json
import sys
from typing import Literal

from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel


@tool
def weather(city: Literal["Oslo", "Rome"]) -> str:
    """The weather in a city."""
    return f"rain in {city}"


class Judgement(BaseModel):
    """Whether a promise was kept."""

    verdict: Literal["kept", "broken"]


llm = ChatOpenAI(model=sys.argv[1], use_responses_api=True, max_tokens=64, temperature=0, max_retries=0, timeout=60)
asked = [HumanMessage("What is the weather in Oslo?")]
bound = llm.bind_tools([weather], tool_choice="weather", strict=True)
said = bound.invoke(asked)
streamed = None
for chunk in bound.stream(asked):
    streamed = chunk if streamed is None else streamed + chunk
back = weather.invoke(said.tool_calls[0])
after = llm.invoke([*asked, said, back])
judged = llm.with_structured_output(Judgement, method="json_schema", strict=True).invoke("Was it kept?")
print(
    json.dumps(
        {
            "calls": [call["name"] for call in said.tool_calls],
            "streamed_calls": [call["name"] for call in streamed.tool_calls],
            "same": said.tool_calls[0]["args"] == streamed.tool_calls[0]["args"],
            "result": back.content,
            "after": after.type,
            "judged": type(judged).__name__,
        }
    )
)
