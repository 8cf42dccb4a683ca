"""Messages as turns of a chat: the results of tools stand before what else a message holds, each in a turn of its own.

Pure. A chat has no word for a call that failed, so the result of one begins with `Error`. Thinking that only its writer
can read (`redacted_thinking`) is left out. System messages that follow each other are one turn.
"""

import json
from collections.abc import Sequence
from typing import Any

from paceline_workers.server.openai.body import invalid
from paceline_workers.server.openai.tools import CALLS_LIMIT

Turn = dict[str, Any]
IDENTITY, FUNCTION = 128, 64
"""Characters of a call's id and of its function's name, as in a chat."""


def turns_of(system: str, messages: Sequence[dict[str, Any]]) -> list[Turn]:
    """The chat of all messages. Raises RequestError naming the block."""
    turns: list[Turn] = [{"role": "system", "content": system}] if system else []
    names: dict[str, str] = {}
    for place, message in enumerate(messages):
        for turn in _turns(message, f"messages[{place}]", names):
            if turn["role"] == "system" and turns and turns[-1]["role"] == "system":
                turns[-1]["content"] += f"\n\n{turn['content']}"
            else:
                turns.append(turn)
    return turns


def text_of(value: Any) -> str:
    """A text, or the text of a list of blocks. Raises ValueError."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(one, dict) and isinstance(one.get("text"), str) for one in value):
        return "".join(one["text"] for one in value)
    raise ValueError('must be a text or a list of {"type": "text", "text": ...}')


def _turns(message: dict[str, Any], where: str, names: dict[str, str]) -> list[Turn]:
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant", "system"):
        raise invalid(f'`{where}.role` must be "user", "assistant" or "system".', f"{where}.role")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(blocks, list):
        raise invalid(f"`{where}.content` must be a text or a list of blocks.", f"{where}.content")
    turn: Turn = {"role": role, "content": ""}
    results: list[Turn] = []
    for place, block in enumerate(blocks):
        at = f"{where}.content[{place}]"
        match (role, block):
            case (_, {"type": "text", "text": str(text)}):
                turn["content"] += text
            case ("assistant", {"type": "thinking", "thinking": str(text)}):
                turn["reasoning_content"] = turn.get("reasoning_content", "") + text
            case ("assistant", {"type": "redacted_thinking"}):
                pass
            case ("assistant", {"type": "tool_use", "id": str(identity), "name": str(name), "input": dict(given)}):
                names[_within(identity, f"{at}.id", IDENTITY)] = _within(name, f"{at}.name", FUNCTION)
                function = {"name": name, "arguments": json.dumps(given, ensure_ascii=False)}
                turn.setdefault("tool_calls", []).append({"id": identity, "type": "function", "function": function})
            case ("user", {"type": "tool_result", "tool_use_id": str(identity)}):
                told = _within(identity, f"{at}.tool_use_id", IDENTITY)
                own = {"role": "tool", "tool_call_id": told, "content": _result(block, at)}
                results.append(own | ({"name": names[identity]} if identity in names else {}))
            case _:
                words = "text, of an assistant thinking and tool_use, of a user tool_result"
                raise invalid(f"`{at}` must be a whole block of a known type: {words}.", at)
    if len(turn.get("tool_calls", ())) > CALLS_LIMIT:
        raise invalid(f"`{where}.content` holds at most {CALLS_LIMIT} blocks `tool_use`.", f"{where}.content")
    return [*results, turn] if not results or turn["content"] else results


def _within(text: str, where: str, most: int) -> str:
    if not 0 < len(text) <= most:
        raise invalid(f"`{where}` must have 1 to {most} characters.", where)
    return text


def _result(block: dict[str, Any], where: str) -> str:
    content = block.get("content")
    try:
        told = "" if content is None else text_of(content)
    except ValueError as error:
        raise invalid(f"`{where}.content` {error}.", f"{where}.content") from None
    failed = block.get("is_error")
    if not (failed is None or isinstance(failed, bool)):
        raise invalid(f"`{where}.is_error` must be true or false.", f"{where}.is_error")
    if not failed:
        return told
    return f"Error: {told}" if told else "Error"
