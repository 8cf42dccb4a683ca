"""Sampling under a grammar: only what fits, the end only where it may end, and the same after any cut."""

import json
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.engine.driver import Driver, load
from tests.engine.reference_scheduler import request
from tests.every import cases

from paceline_core.errors import InvalidInput
from paceline_workers import demo
from paceline_workers.engine.sampling import Grammars, Sampler
from paceline_workers.engine.sampling.grammar_matcher import COMPILED, RENEWAL_S
from paceline_workers.engine.scheduling import Request, RequestStatus, SampledToken
from paceline_workers.messages import Sampling, Submit

TEXT = (demo.FOLDER / "tokenizer.json").read_text()
TOKENIZER: Any = tokenizers.Tokenizer.from_str(TEXT)
VOCAB = TOKENIZER.get_vocab_size()
EOS = TOKENIZER.token_to_id("<|end|>")
WORDS = {token: TOKENIZER.decode([token], skip_special_tokens=False) for token in range(VOCAB)}
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "pets": {"type": "array", "items": {"enum": ["cat", "dog"]}, "maxItems": 2},
    },
    "required": ["name", "age", "pets"],
    "additionalProperties": False,
}
SUM = 'lark:start: sum\nsum: NUMBER | "(" sum "+" sum ")"\nNUMBER: /[0-9]{1,3}/'


@cache
def grammars() -> Grammars:
    return Grammars(TEXT, VOCAB, [EOS])


def entry(grammar: str, output: Sequence[int] = (), **sampling: Any) -> Request:
    made = request("a", [7, 8], 99, stop_ids=frozenset({EOS}))
    made.tokens += output
    made.sampling = Sampling(grammar=grammar, **sampling)
    made.state = RequestStatus.RUNNING
    return made


def model(made: Request) -> NDArray[np.float32]:
    """Logits that depend on the whole context, and rather like what closes things."""
    chance = np.random.default_rng([len(made.tokens), *made.tokens])
    row: NDArray[np.float32] = chance.standard_normal(VOCAB).astype(np.float32)
    row[[token for token, word in WORDS.items() if word in {'"', "}", "]", ")", '"}', EOS}]] += 4
    return row


def text(made: Request, sampler: Sampler | None = None, limit: int = 250) -> str:
    """Sample to the end of the grammar, or `limit` tokens."""
    sampler = sampler or Sampler(grammars())
    ended = False
    while not ended and made.produced < limit:
        (one,) = sampler(model(made)[None], [made])
        made.tokens.append(one.token)
        ended = one.ended
    assert ended
    assert made.tokens[-1] == EOS
    words: str = TOKENIZER.decode(made.tokens[made.prompt_len : -1], skip_special_tokens=False)
    return words


def allowed(grammar: str, output: Sequence[int] = (), **changed: Any) -> set[int]:
    made = entry(grammar, output)
    for name, value in changed.items():
        setattr(made, name, value)
    return set(np.flatnonzero(grammars().masks([grammars().matcher(made)], VOCAB)[0]).tolist())


def ids(words: str) -> list[int]:
    found: list[int] = TOKENIZER.encode(words, add_special_tokens=False).ids
    return found


def is_person(words: str) -> bool:
    person = json.loads(words)
    return (
        set(person) == {"name", "age", "pets"}
        and len(person["name"]) <= 6
        and 0 <= person["age"] <= 120
        and set(person["pets"]) <= {"cat", "dog"}
    )


def is_sum(words: str) -> bool:
    while "(" in words:
        words, before = re.sub(r"\([0-9]{1,3}\+[0-9]{1,3}\)", "1", words), words
        if words == before:
            return False
    return bool(re.fullmatch("[0-9]{1,3}", words))


@cases("seed", range(6))
@cases(
    ("grammar", "fits"),
    [
        ("json", lambda words: isinstance(json.loads(words), dict)),
        (f"json_schema:{json.dumps(SCHEMA)}", is_person),
        ("regex:[a-c]{2,9}@(x|yz)+\\.org", lambda words: bool(re.fullmatch(r"[a-c]{2,9}@(x|yz)+\.org", words))),
        (SUM, is_sum),
    ],
)
def test_whatever_the_model_likes_the_text_fits_the_grammar(
    grammar: str, fits: Callable[[str], bool], seed: int
) -> None:
    temperature = 0.0 if seed == 0 else 1.2
    assert fits(text(entry(grammar, temperature=temperature, seed=seed, top_p=0.95)))


@given(st.sets(st.text("abc", min_size=1, max_size=6), min_size=1, max_size=5), st.data())
def test_the_mask_holds_only_what_fits_and_every_word_can_still_be_reached(
    words: set[str], data: st.DataObject
) -> None:
    """Of two spellings of the same forced text it may leave the tokenizer's own alone."""
    target = data.draw(st.sampled_from(sorted(words)))
    prefix = target[: data.draw(st.integers(0, len(target)))]
    left = {word[len(prefix) :] for word in words if word.startswith(prefix)}
    mask = allowed(f"regex:{'|'.join(sorted(words))}", ids(prefix) if prefix else [])
    assert all(any(rest.startswith(WORDS[token]) for rest in left) for token in mask - {EOS})
    assert all(any(rest.startswith(WORDS[token]) for token in mask - {EOS}) for rest in left - {""})
    assert (EOS in mask) == ("" in left)


def test_stop_ids_are_allowed_only_where_the_grammar_may_end() -> None:
    (stop,) = ids("z")
    assert stop not in allowed("regex:ab+", ids("a"), stop_ids=frozenset({EOS, stop}))
    assert {EOS, stop} <= allowed("regex:ab+", ids("a") + ids("b"), stop_ids=frozenset({EOS, stop, VOCAB}))


def test_min_tokens_hold_the_end_back_while_something_else_may_come() -> None:
    assert EOS not in allowed("regex:[ab]+", ids("a"), min_tokens=5)
    assert EOS in allowed("regex:[ab]+", ids("a") * 5, min_tokens=5)
    assert allowed("regex:a", ids("a"), min_tokens=5) == {EOS}


def test_a_grammar_ends_a_request_that_ignores_eos() -> None:
    made = entry("regex:(a|b)c", temperature=1.0)
    made.stop_ids = frozenset()
    assert text(made) in {"ac", "bc"}


def test_tokens_that_do_not_fit_leave_only_the_end() -> None:
    assert allowed("regex:ab", ids("zzz")) == {EOS}


@pytest.mark.parametrize("unread", ["regex:(", "yaml:x", "json_schema:{", "lark:start: <|nobody|>"])
def test_a_grammar_that_nobody_checked_costs_its_own_request_alone(unread: str) -> None:
    row = np.zeros((2, VOCAB), dtype=np.float32)
    bad, good = Sampler(grammars())(row, [entry(unread), entry("regex:ab", temperature=0.0)])
    assert bad.error.startswith("The grammar cannot be followed: ")
    assert (good.error, WORDS[good.token][:1]) == ("", "a")


@pytest.mark.parametrize(
    "rules",
    [
        's: s s s | s s | "a" |',
        's: s s | "a"',
        "\n".join(["s: e0", *(f'e{step}: e{step + 1} e{step + 1} | "a"' for step in range(30)), 'e30: "b"']),
    ],
    ids=["empty", "pairs", "chain"],
)
def test_a_grammar_that_can_be_read_in_ever_more_ways_is_refused_while_it_is_cheap(rules: str) -> None:
    made = entry(f"lark:start: s\n{rules}", temperature=1.0)
    made.stop_ids = frozenset()
    made.min_tokens = 400
    sampler, one = Sampler(grammars()), SampledToken(0)
    while not one.error and made.produced < 400:
        (one,) = sampler(model(made)[None], [made])
        made.tokens.append(one.token)
    assert "items; max is 512" in one.error
    assert one.refused


def test_what_others_have_used_up_of_a_grammar_costs_nobody_his_answer() -> None:
    """The library shares a lexer's states among all who follow a grammar; each text here needs some thousands."""
    own = Grammars(TEXT, VOCAB, [EOS])
    sampler, ends = Sampler(own), []
    for seed in range(24):
        made = entry("regex:(?s)(.*[aeiou]){20}.{20}z.*[xyz].{15}q.*", temperature=3.0, seed=seed)
        made.min_tokens = 40
        one = SampledToken(0)
        while not one.error and made.produced < 40:
            (one,) = sampler(model(made)[None], [made])
            made.tokens.append(one.token)
        made.state = RequestStatus.DONE
        ends.append(one.error)
    assert ends == [""] * 24


def test_an_expression_that_alone_needs_too_many_states_is_refused() -> None:
    made = entry("regex:(?s)(.*[aeiou]){20}.{20}z.*[xyz].{15}q.*", temperature=3.0)
    made.min_tokens = 1500
    sampler, one = Sampler(Grammars(TEXT, VOCAB, [EOS])), SampledToken(0)
    while not one.error and made.produced < 1500:
        (one,) = sampler(model(made)[None], [made])
        made.tokens.append(one.token)
    assert "too many states" in one.error
    assert one.refused


def test_a_grammar_that_took_long_to_compile_is_not_compiled_anew_within_a_step() -> None:
    made = entry("regex:[ab]{3}")
    asked: list[int] = []

    def cpu() -> float:
        asked.append(len(asked))
        return RENEWAL_S * 2 * len(asked)

    slow = Grammars(TEXT, VOCAB, [EOS], cpu=cpu)
    matcher = slow.matcher(made)
    assert slow.renewed(matcher) is matcher
    assert len(asked) == 2
    quick = Grammars(TEXT, VOCAB, [EOS], cpu=lambda: 0.0)
    matcher = quick.matcher(made)
    assert quick.renewed(matcher).compiled is not matcher.compiled


def test_a_tokenizer_is_read_before_the_first_grammar_asks_for_it(tmp_path: Path) -> None:
    """The library holds Python's lock while it reads one, so the engine's loop would stand still."""
    path = tmp_path / "tokenizer.json"
    path.write_text(TEXT)
    kept = Grammars.load(tmp_path, VOCAB, [EOS])
    assert kept
    path.unlink()
    assert text(entry("regex:[a-z]{3}"), Sampler(kept))


def test_a_schema_that_is_wide_and_not_ambiguous_is_followed() -> None:
    wide = {"type": "object", "properties": {f"p{number}": {"type": "integer"} for number in range(400)}}
    made = entry(f"json_schema:{json.dumps(wide | {'additionalProperties': False})}", ids("{"))
    (one,) = Sampler(grammars())(model(made)[None], [made])
    assert not one.error


def test_logits_wider_than_the_tokenizer_are_masked_beyond_it() -> None:
    made = entry("regex:[^a]+", temperature=0.0)
    row = np.zeros(VOCAB + 70, dtype=np.float32)
    row[VOCAB:] = 9.0
    assert Sampler(grammars())(row[None], [made])[0].token < VOCAB


@pytest.mark.parametrize("grammar", [f"json_schema:{json.dumps(SCHEMA)}", SUM], ids=["schema", "lark"])
def test_a_text_resumed_at_any_position_goes_on_as_it_would_have(grammar: str) -> None:
    how: dict[str, Any] = {"temperature": 1.0, "seed": 4, "presence": 0.3}
    made = entry(grammar, **how)
    whole, output = text(made), made.tokens[made.prompt_len :]
    for cut in range(len(output)):
        assert text(entry(grammar, output[:cut], **how)) == whole


def test_company_changes_no_token_and_preemption_neither() -> None:
    wanted = [f"json_schema:{json.dumps(SCHEMA)}", SUM, "", "regex:[ab]{30,40}"]
    alone = [entry(grammar, seed=3) for grammar in wanted]
    together = [entry(grammar, seed=3) for grammar in wanted]
    sampler = Sampler(grammars())
    for step in range(20):
        for made in alone:
            made.tokens.append(Sampler(grammars())(model(made)[None], [made])[0].token)
        rows = np.stack([model(made) for made in together])
        for made, drawn in zip(together, sampler(rows, together), strict=True):
            made.tokens.append(drawn.token)
        together[step % 4].state = RequestStatus.WAITING
        sampler(np.empty((0, VOCAB), dtype=np.float32), [])
        together[step % 4].state = RequestStatus.RUNNING
    assert [made.tokens for made in together] == [made.tokens for made in alone]
    for made in together:
        made.state = RequestStatus.DONE
    sampler(np.empty((0, VOCAB), dtype=np.float32), [])
    assert sampler.retained == 0


def test_only_so_many_grammars_stay_compiled() -> None:
    kept = Grammars(TEXT, VOCAB, [EOS])
    for number in (*range(COMPILED + 10), 5, 5):
        kept.matcher(entry(f"regex:a{{{number + 1}}}"))
    assert kept.compiled == COMPILED


def test_a_model_without_a_tokenizer_has_no_grammars(tmp_path: Path) -> None:
    assert Grammars.load(tmp_path, VOCAB, [EOS]) is None
    with pytest.raises(InvalidInput, match="tokenizer"):
        Sampler()(np.zeros((1, VOCAB), dtype=np.float32), [entry("json")])


def test_a_tokenizer_that_could_not_be_read_is_read_again_with_the_first_grammar(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text("{}")
    kept = Grammars.load(tmp_path, VOCAB, [EOS])
    assert kept
    path.write_text(TEXT)
    assert text(entry("regex:[a-z]{3}"), Sampler(kept))


@pytest.mark.parametrize(("tokenizer", "size"), [("{}", VOCAB), (TEXT, VOCAB - 1)])
def test_a_tokenizer_that_cannot_be_used_fails_what_needs_it(tmp_path: Path, tokenizer: str, size: int) -> None:
    (tmp_path / "tokenizer.json").write_text(tokenizer)
    kept = Grammars.load(tmp_path, size, [EOS])
    assert kept
    with pytest.raises(ValueError, match=r".+"):
        kept.prepare("json").result()


def test_a_grammar_that_cannot_be_compiled_fails_with_the_reason() -> None:
    with pytest.raises(ValueError, match="unclosed group"):
        grammars().prepare("regex:a(b").result()


def test_the_engine_writes_what_fits_beside_plain_requests() -> None:
    backend = load(demo.FOLDER)
    assert backend.facts.grammars
    run = Driver(backend, pages=40, max_model_len=300)
    prompt = ids("Tell me about a person")
    dates = "regex:[0-9]{4}-[0-9]{2}( and [0-9]{4}-[0-9]{2}){1,3}"
    for number in range(4):
        run.submit(f"date{number}", prompt, 200, Sampling(temperature=1.0, seed=number, grammar=dates))
        run.submit(f"plain{number}", prompt, 40)
    run.drain()
    for number in range(4):
        written = run.text(f"date{number}")
        assert re.fullmatch(dates.removeprefix("regex:"), TOKENIZER.decode(written[:-1]))
        assert [event.finish for event in run.events if event.id == f"date{number}"][-1] == "stop"
        assert len(run.text(f"plain{number}")) == 40


def test_the_engine_resumes_penalties_and_grammars_at_any_position() -> None:
    backend = load(demo.FOLDER)
    wants = {
        "grammar": Sampling(temperature=0.9, seed=1, grammar="regex:([a-z]{1,5} ){5}[0-9]+"),
        "penalty": Sampling(temperature=0.9, seed=2, repetition=1.3, frequency=0.4, presence=0.2, min_p=0.02),
    }
    prompt = ids("One fine day")
    whole = Driver(backend)
    for name, how in wants.items():
        whole.submit(name, prompt, 16, how)
    whole.drain()
    resumed = Driver(backend)
    for name, how in wants.items():
        text = whole.text(name)
        for cut in range(1, len(text)):
            submit = Submit(f"{name}{cut}", prompt, 16, how, produced=text[:cut])
            assert resumed.core.submit(Request.of(submit, (), 0.0)) is None
    resumed.drain()
    for name in wants:
        text = whole.text(name)
        assert [resumed.text(f"{name}{cut}") for cut in range(1, len(text))] == [
            text[cut:] for cut in range(1, len(text))
        ]
