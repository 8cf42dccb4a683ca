"""Items of a response's input as turns of a chat. Pure.

Reasoning, a message of the assistant and the calls around it are one turn, as models write them. A call's output
becomes a turn of role `tool`, named after the function that was called.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paceline_workers.server.openai.validation import invalid

Item = Mapping[str, Any]
Turn = dict[str, Any]
IDENTITY, FUNCTION = 128, 64
"""Characters of a call's id and of its function's name, as in a chat."""
_TEXTS = frozenset({"input_text", "output_text", "text", "reasoning_text", "summary_text"})


def located_turns(instructions: str | None, given: str | Sequence[Any]) -> list[tuple[str, Turn]]:
    """The chat of an input: where in the body each turn begins, and the turn. Raises RequestError naming the item."""
    turns: list[Turn] = [] if instructions is None else [{"role": "system", "content": instructions}]
    places = ["instructions"] * len(turns)
    if isinstance(given, str):
        return list(zip([*places, "input"], [*turns, {"role": "user", "content": given}], strict=True))
    names: dict[str, str] = {}
    for place, item in enumerate(given):
        where = f"input[{place}]"
        if not isinstance(item, dict):
            raise invalid(f"`{where}` must be an object.", where)
        kind = item.get("type") or "message"
        take = _TAKES.get(kind) if isinstance(kind, str) else None
        if take is None:
            known = ", ".join(_TAKES)
            raise invalid(f"`{where}.type` must be one of {known}; others are not known here.", f"{where}.type")
        take(turns, item, where, names)
        places += [where] * (len(turns) - len(places))
    return list(zip(places, turns, strict=True))


def _message(turns: list[Turn], item: Item, where: str, names: dict[str, str]) -> None:  # noqa: ARG001 - as the others
    role, content = _text(item, "role", where), _content(item.get("content"), f"{where}.content")
    last = _assistant(turns) if role == "assistant" else None
    if last is not None and (last.get("tool_calls") or not last["content"]):
        last["content"] += content
    else:
        turns.append({"role": role, "content": content})


def _reasoning(turns: list[Turn], item: Item, where: str, names: dict[str, str]) -> None:  # noqa: ARG001 - as above
    content = item.get("content") or item.get("summary") or ""
    turns.append({"role": "assistant", "content": "", "reasoning_content": _content(content, f"{where}.content")})


def _call(turns: list[Turn], item: Item, where: str, names: dict[str, str]) -> None:
    identity, name = _text(item, "call_id", where, IDENTITY), _text(item, "name", where, FUNCTION)
    names[identity] = name
    turn = _assistant(turns)
    if turn is None:
        turn = {"role": "assistant", "content": ""}
        turns.append(turn)
    function = {"name": name, "arguments": _text(item, "arguments", where)}
    turn.setdefault("tool_calls", []).append({"id": identity, "type": "function", "function": function})


def _output(turns: list[Turn], item: Item, where: str, names: dict[str, str]) -> None:
    identity = _text(item, "call_id", where, IDENTITY)
    turn = {"role": "tool", "content": _content(item.get("output"), f"{where}.output"), "tool_call_id": identity}
    turns.append(turn | ({"name": names[identity]} if identity in names else {}))


_TAKES: Mapping[str, Callable[[list[Turn], Item, str, dict[str, str]], None]] = {
    "message": _message,
    "reasoning": _reasoning,
    "function_call": _call,
    "function_call_output": _output,
}


def _assistant(turns: list[Turn]) -> Turn | None:
    """The turn that the assistant has not ended."""
    return turns[-1] if turns and turns[-1]["role"] == "assistant" else None


def _text(item: Item, name: str, where: str, most: int | None = None) -> str:
    value = item.get(name)
    if not isinstance(value, str):
        raise invalid(f"`{where}.{name}` must be a text.", f"{where}.{name}")
    if most is not None and len(value) > most:
        raise invalid(f"`{where}.{name}` holds at most {most} characters.", f"{where}.{name}")
    return value


def _content(value: Any, where: str) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise invalid(f"`{where}` must be a text or a list of parts.", where)
    return "".join(_part(part, f"{where}[{place}]") for place, part in enumerate(value))


def _part(part: Any, where: str) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    text = part.get("refusal" if kind == "refusal" else "text") if isinstance(part, dict) else None
    if not isinstance(text, str) or not (kind == "refusal" or kind in _TEXTS):
        raise invalid(f'`{where}` must be {{"type": "input_text", "text": ...}}; this model takes text only.', where)
    return text
