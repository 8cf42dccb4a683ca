"""A model's reasoning: found by its markers, split off the same however it is cut, before what is asked of the text."""

from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from llguidance import LLTokenizer
from tests.every import cases
from tests.published_templates import templates

from paceline_core.clock import SystemClock
from paceline_core.errors import InvalidInput
from paceline_workers import demo
from paceline_workers.engine.sampling import grammar
from paceline_workers.messages import Tokens
from paceline_workers.server.text.chat import ChatTemplate, Rendering
from paceline_workers.server.text.output import Piece, TextOutput
from paceline_workers.server.text.reasoning import (
    ReasoningMarkers,
    ReasoningSplitter,
    ReasoningStart,
    after_reasoning,
    begun,
    reasoning_of,
)
from paceline_workers.server.text.tokenizer import Tokenizer

OPEN, CLOSE = "<think>", "</think>"
MARKERS = ReasoningMarkers(OPEN, CLOSE)
INSIDE = ReasoningMarkers(OPEN, CLOSE, ReasoningStart.INSIDE)
TEXTS = st.lists(st.sampled_from([OPEN, CLOSE, "<thi", "nk>", "</", "a", " ", "\n", "<", "<tool_call>"])).map("".join)
CUTS = st.lists(st.integers(1, 7), min_size=1, max_size=24)


def split(reasoning: ReasoningMarkers | None, text: str, cuts: list[int]) -> tuple[str, str]:
    splitter, told, at, turn = ReasoningSplitter(reasoning), ["", ""], 0, 0
    while at < len(text):
        size = cuts[turn % len(cuts)]
        told = [a + b for a, b in zip(told, splitter.feed(text[at : at + size]), strict=True)]
        at, turn = at + size, turn + 1
    thought, content = (a + b for a, b in zip(told, splitter.flush(), strict=True))
    return thought, content


def truth(reasoning: ReasoningMarkers | None, text: str) -> tuple[str, str]:
    """The same of a whole text, in the words of the contract."""
    words = text.lstrip()
    if reasoning is None or (reasoning.begin is ReasoningStart.UNKNOWN and not words.startswith(OPEN)):
        return "", text
    behind = text if reasoning.begin is ReasoningStart.INSIDE else words[len(OPEN) :]
    thought, _, content = behind.partition(CLOSE)
    return thought, content


@given(st.sampled_from([None, MARKERS, INSIDE]), TEXTS, CUTS)
def test_a_text_is_split_the_same_at_every_cut(reasoning: ReasoningMarkers | None, text: str, cuts: list[int]) -> None:
    assert split(reasoning, text, cuts) == truth(reasoning, text)


@cases(
    ("prompt", "continued", "begin"),
    [
        ("<|assistant|>\n", None, ReasoningStart.UNKNOWN),
        ("<|assistant|><think>\n", None, ReasoningStart.INSIDE),
        ("<|assistant|><think>\n\n</think>\n\n", None, None),
        ("user: what is <think>?\nassistant:", None, ReasoningStart.UNKNOWN),
        ("x", "<think>so far", ReasoningStart.INSIDE),
        ("x", "<think>so</think>an", None),
        ("x", "an answer", None),
        ("x", "", ReasoningStart.UNKNOWN),
    ],
)
def test_the_end_of_a_prompt_tells_where_its_answer_begins(
    prompt: str, continued: str | None, begin: ReasoningStart | None
) -> None:
    found = begun(MARKERS, prompt, continued)
    assert (found.begin if found else None) == begin


PIECES = ["<think>", "so", " stop", " it</", "think>", "an", "swer", " stop", " more"]


def output_of(ids: list[int], **how: Any) -> tuple[list[Piece], TextOutput]:
    output = TextOutput(lambda given: "".join(PIECES[token] for token in given), reasoning=MARKERS, **how)
    frames = [Tokens("s", at, [token], "length" if at == len(ids) - 1 else "") for at, token in enumerate(ids)]
    pieces: list[Piece] = []
    while frames and not output.stopped:
        pieces += [piece] if (piece := output.feed([frames.pop(0)])) else []
    return pieces, output


def test_stop_strings_are_looked_for_behind_the_reasoning_alone() -> None:
    pieces, output = output_of(list(range(9)), stops=["stop"])
    assert "".join(piece.reasoning for piece in pieces) == "so stop it"
    assert "".join(piece.text for piece in pieces) == "answer "
    assert pieces[-1].finish == "stop"
    assert (output.tokens, output.reasoning_tokens) == (8, 5)
    assert [token for piece in pieces for token in piece.ids] == list(range(8))


def test_reasoning_that_does_not_end_is_reasoning_and_can_be_left_untold() -> None:
    pieces, output = output_of([0, 1, 2, 3])
    assert "".join(piece.reasoning for piece in pieces) == "so stop it</"
    assert ("".join(piece.text for piece in pieces), output.reasoning_tokens) == ("", 4)
    hidden, counted = output_of([0, 1, 2, 3], include_reasoning=False)
    assert ({piece.reasoning for piece in hidden}, counted.reasoning_tokens) == ({""}, 4)


def test_what_was_told_before_a_resumption_is_not_told_again() -> None:
    output = TextOutput(lambda given: "".join(PIECES[token] for token in given), reasoning=MARKERS)
    before = output.replay([0, 1, 2, 3])
    assert (before.reasoning, before.text) == ("so stop it", "")
    piece = output.feed([Tokens("s", 4, [4, 5], "length")])
    assert piece is not None
    assert (piece.reasoning, piece.text, output.reasoning_tokens) == ("", "an", 5)


def no_special(_: str) -> int | None:
    return None


def follows(text: str, words: str) -> bool:
    matcher = grammar.matcher(grammar._bytes(), text)
    taken = matcher.try_consume_tokens(list(words.encode()))
    return taken == len(words.encode()) and matcher.is_accepting()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("json", '{"a":1}'),
        ('json_schema:{"type":"array"}', "[1]"),
        ("regex:a/b+", "a/bb"),
        ('lark:start: "yes" | "n \\" o"', 'n " o'),
        ('calls:start: answer | calls\nanswer: %json {"type":"object"}\ncalls: "x"', "x"),
    ],
)
def test_a_grammar_begins_behind_the_reasoning(answer: str, said: str) -> None:
    for reasoning, opening in ((INSIDE, ""), (MARKERS, OPEN)):
        text = after_reasoning(answer, reasoning, no_special)
        assert grammar.check(text) == ""
        assert follows(text, f"{opening}\nso: {{</>\n{CLOSE}{said}")
        assert not follows(text, f"{opening}so{CLOSE}!{said}")
        assert not follows(text, f"{opening}so")
        assert follows(text, said) == (opening != "")


def test_a_clients_own_grammar_names_no_special_token_behind_reasoning() -> None:
    for text in ("lark:start: <[5]>", 'lark:start: "a" | x\nx: "b"'):
        with pytest.raises(ValueError, match="enable_thinking"):
            after_reasoning(text, INSIDE, no_special)


@pytest.mark.parametrize("special", [True, False])
def test_markers_that_are_tokens_of_their_own_open_and_close_what_a_grammar_leaves_free(special: bool) -> None:
    inner = tokenizers.Tokenizer.from_file(str(demo.FOLDER / "tokenizer.json"))
    inner.add_tokens([tokenizers.AddedToken(text, special=special, normalized=False) for text in (OPEN, CLOSE)])
    size = inner.get_vocab_size()
    model = Tokenizer(inner, {})
    text = after_reasoning("json", MARKERS, model.grammar_token)
    matcher = grammar.matcher(LLTokenizer(inner.to_str(), n_vocab=size, eos_token=0), text)
    opening, closing = (inner.token_to_id(name) or 0 for name in (OPEN, CLOSE))
    ids = [opening, *inner.encode("so: {", add_special_tokens=False).ids, closing]
    assert matcher.try_consume_tokens(ids) == len(ids)
    answer = inner.encode("{}", add_special_tokens=False).ids
    assert not matcher.is_accepting()
    assert matcher.try_consume_tokens(answer) == len(answer)
    assert matcher.is_accepting()


def test_a_closing_marker_that_is_a_special_token_is_named_by_its_id() -> None:
    assert "<[7]>" in after_reasoning("json", INSIDE, {CLOSE: 7}.get)


@pytest.mark.real
def test_published_templates_tell_their_reasoning() -> None:
    found: dict[str, tuple[str, str]] = {}
    for path in sorted(templates().glob("*.jinja")):
        source = path.read_text()
        markers = reasoning_of(source)
        if markers is None:
            continue
        try:
            template = ChatTemplate(source, {}, SystemClock().utc, path.name)
            for thinking in (True, False):
                how = Rendering(variables={"enable_thinking": thinking})
                state = template.begun(template.render([{"role": "user", "content": "Hi"}], (), how), None)
                found[path.stem] = (*found.get(path.stem, ()), str(state.begin) if state else "none")
        except InvalidInput:
            continue
    assert found["Qwen-Qwen3-0.6B"] == ("unknown", "none")
    assert found["Qwen-QwQ-32B"] == ("inside", "none")
    assert found["deepseek-ai-DeepSeek-R1-Distill-Qwen-32B"] == ("inside", "none")
    assert found["deepseek-ai-DeepSeek-R1-Distill-Llama-8B"] == ("inside", "inside")
    assert found["mistralai-Ministral-3-14B-Reasoning-2512"] == ("unknown", "unknown")
    assert found["ByteDance-Seed-OSS"][0] == "unknown"
    assert not found.keys() & {"meta-llama-Llama-3.1-8B-Instruct", "Qwen-Qwen2.5-7B-Instruct"}
    assert len(found) >= 30
