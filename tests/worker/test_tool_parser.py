"""Calls in a text: found in each family's form, whatever pieces the text comes in, and else left as text."""

import json
from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from tests.every import cases

from paceline_workers.server.tools.formats import Hermes, Llama, Mistral
from paceline_workers.server.tools.parser import Call, CallParser, Part, ToolCallFormat

NAMES = frozenset({"add", "get_weather"})
ADD = Call("add", '{"a": 1, "b": [2, "}"]}')
WEATHER = Call("get_weather", '{"city": "Ḱyiv \\"]}\\""}')
BODY = '{"name": "add", "arguments": {"a": 1, "b": [2, "}"]}}'
CITY = '{"name": "get_weather", "parameters": {"city": "Ḱyiv \\"]}\\""}}'
FOREIGN = '<tool_call>{"name": "rm", "arguments": {}}</tool_call>'
NO_OBJECT = '<tool_call>{"name": "add", "arguments": "x"}</tool_call>'

CASES: list[tuple[ToolCallFormat, str, list[Part]]] = [
    (Hermes(), "just text with <tool", ["just text with <tool"]),
    (Hermes(), f"<tool_call>\n{BODY}\n</tool_call>", [ADD]),
    (Hermes(), f"See:\n\n<tool_call>{CITY}</tool_call>\n<tool_call>\n{BODY}\n</tool_call>\n", ["See:", WEATHER, ADD]),
    (Hermes(), f"<tool_call>{BODY}</tool_call> and so on ", [ADD, " and so on "]),
    (Hermes(), f"<tool_call>{BODY}", [ADD]),
    (Hermes(), '<tool_call>{"name": "add", "arg', ['<tool_call>{"name": "add", "arg']),
    (Hermes(), "<tool_call>no JSON</tool_call> then", ["<tool_call>no JSON</tool_call> then"]),
    (Hermes(), FOREIGN, [FOREIGN]),
    (Hermes(), NO_OBJECT, [NO_OBJECT]),
    (Hermes(), '<tool_call>{"name": "add"}</tool_call>', [Call("add", "{}")]),
    (Llama(), BODY, [ADD]),
    (Llama(), f"  <|python_tag|>{CITY}", [WEATHER]),
    (Llama(), f"{BODY}; {CITY}", [ADD, WEATHER]),
    (Llama(), f"{BODY}\n", [ADD]),
    (Llama(), f"{BODY} done", [ADD, " done"]),
    (Llama(), f"I call {BODY}", [f"I call {BODY}"]),
    (Llama(), '{"answer": 42} is JSON', ['{"answer": 42} is JSON']),
    (Llama(), '{"name": "add", "para', ['{"name": "add", "para']),
    (Llama(), "<|python", ["<|python"]),
    (Llama(), "  ", ["  "]),
    (Llama(), f"<|python_tag|>no {BODY}", [f"<|python_tag|>no {BODY}"]),
    (Mistral(), f"[TOOL_CALLS] [{BODY}, {CITY}]", [ADD, WEATHER]),
    (Mistral(), f"So:\n[TOOL_CALLS][{BODY}]", ["So:", ADD]),
    (Mistral(), '[TOOL_CALLS]add{"a": 1, "b": [2, "}"]}', [ADD]),
    (Mistral(), '[TOOL_CALLS]add[ARGS]{"a": 1, "b": [2, "}"]}[TOOL_CALLS]add[ARGS]{}', [ADD, Call("add", "{}")]),
    (Mistral(), f"[TOOL_CALLS] [{BODY}", [f"[TOOL_CALLS] [{BODY}"]),
    (Mistral(), f'[TOOL_CALLS] [{BODY}, {{"name": "rm"}}] x', [f'[TOOL_CALLS] [{BODY}, {{"name": "rm"}}] x']),
    (Mistral(), "[TOOL_CALLS]rm{}", ["[TOOL_CALLS]rm{}"]),
    (Mistral(), "[1, 2] [TOOL", ["[1, 2] [TOOL"]),
]  # fmt: skip
FORMS: list[ToolCallFormat] = [Hermes(), Llama(), Mistral()]


def parsed(form: ToolCallFormat, pieces: Sequence[str]) -> list[Part]:
    """All parts, with neighbouring texts put together."""
    parser = CallParser(form, NAMES)
    out: list[Part] = []
    for part in [part for piece in pieces for part in parser.feed(piece)] + parser.flush():
        if out and isinstance(part, str) and isinstance(out[-1], str):
            out[-1] += part
        else:
            out.append(part)
    return out


@cases(("form", "text", "parts"), CASES)
def test_a_text_is_read_whole_and_letter_by_letter(form: ToolCallFormat, text: str, parts: list[Part]) -> None:
    assert parsed(form, [text]) == parts
    assert parsed(form, list(text)) == parts


words = st.sampled_from([
    "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "<|python_tag|>", "[ARGS]", BODY, CITY, f"[{BODY}]", "add", "{}",
    "{", "}", "[", "]", ";", " ", "\n", "x", '"', "<tool", "_call>", "[TOOL",
])  # fmt: skip


@given(form=st.sampled_from(FORMS), text=st.lists(words, max_size=8).map("".join), data=st.data())
def test_what_comes_out_does_not_depend_on_the_borders_of_pieces(
    form: ToolCallFormat, text: str, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=12)) | {0, len(text)})
    pieces = [text[start:end] for start, end in pairwise(cuts)]
    assert parsed(form, pieces) == parsed(form, [text])


@given(form=st.sampled_from(FORMS), text=st.lists(words, max_size=8).map("".join))
def test_a_text_without_a_call_comes_out_as_it_went_in(form: ToolCallFormat, text: str) -> None:
    parts = parsed(form, [text])
    if not any(isinstance(part, Call) for part in parts):
        assert "".join(str(part) for part in parts) == text


@given(form=st.sampled_from(FORMS), text=st.lists(words, max_size=8).map("".join))
def test_every_call_is_of_an_offered_function_with_an_object(form: ToolCallFormat, text: str) -> None:
    for part in parsed(form, [text]):
        if isinstance(part, Call):
            assert part.name in NAMES
            assert isinstance(json.loads(part.arguments), dict)


def test_text_is_let_out_as_soon_as_it_can_be_no_call() -> None:
    parser = CallParser(Hermes(), NAMES)
    assert [parser.feed(piece) for piece in ("Hello", " wor", "ld <to", "ken>")] == [
        ["Hello"],
        [" wor"],
        ["ld"],
        [" <token>"],
    ]


def test_an_id_that_the_model_writes_is_the_calls_own() -> None:
    small = '[TOOL_CALLS]add[CALL_ID]a1B2c3D4e[ARGS]{"a": 1}[TOOL_CALLS]add[CALL_ID]short[ARGS]{}'
    assert parsed(Mistral(), [small]) == [Call("add", '{"a": 1}', "a1B2c3D4e"), Call("add", "{}")]
    nemo = '[TOOL_CALLS][{"name": "add", "arguments": {"a": 1}, "id": "a1B2c3D4e"}]'
    assert parsed(Mistral(), [nemo]) == [Call("add", '{"a": 1}', "a1B2c3D4e")]


def test_mistrals_ids_are_nine_characters() -> None:
    assert Mistral().call_id("abcdefghijklmnopqrstuvwx") == "abcdefghi"
    assert Hermes().call_id("abc") == Llama().call_id("abc") == "call_abc"
