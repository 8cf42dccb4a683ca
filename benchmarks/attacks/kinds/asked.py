"""Requests that are read easily and ask for much: fields, texts, tokens, templates, and clients that leave."""

import json
from collections.abc import Iterator
from typing import Any

from benchmarks.attacks.case import Case, Kind, Model, Parts, Reads, parts
from benchmarks.attacks.wire import BODY, CHAT, COMPLETIONS, EMBEDDINGS, MB, RERANK, SCORE, chat, fields, post

REAL = Model.REAL
_LONGEST = 262_144
"""Characters that /tokenize takes."""


def kinds() -> Iterator[Kind]:
    """All of them."""
    yield Kind("asked: how many answers", "answers of one request", tuple(_counts()))
    yield Kind("asked: how long", "tokens of one request", tuple(_lengths()))
    yield Kind("asked: long lists", "checks for each entry", tuple(_lists()))
    yield Kind("asked: wrong types", "faults instead of refusals", tuple(_types()))
    yield Kind("asked: prompts", "requests within a request", tuple(_prompts()))
    yield Kind("asked: tokens of odd texts", "the tokenizer", tuple(_texts()))
    yield Kind("asked: /tokenize and /detokenize", "the tokenizer, without output", tuple(_tokenizing()))
    yield Kind("asked: embeddings", "2,048 requests in one", tuple(_embeddings()))
    yield Kind("asked: scores", "texts times queries", tuple(_scores()))
    yield Kind("asked: templates", "templates that loop or raise", tuple(_templates()))
    yield Kind("asked: and left", "work for clients that are gone", tuple(_left()))
    yield Kind("asked: logprobs", "bytes of an answer", tuple(_logprobs()))
    yield Kind("asked: beams", "KV memory", tuple(_beams()))


def _asks(given: dict[str, dict[str, Any]], connections: int = 8) -> Iterator[Case]:
    for name, wanted in given.items():
        yield Case(name, post(CHAT, fields(**wanted)), connections=connections)


def _counts() -> Iterator[Case]:
    big = (10**15, 33, 2**63, -1, 32)
    yield from _asks({f"n {count}": {"n": count} for count in big})
    for count in (10**15, 64):
        body = json.dumps({"model": "chat", "prompt": "a", "best_of": count, "n": 1, "max_tokens": 8})
        yield Case(f"best_of {count}", post(COMPLETIONS, parts(body)), connections=8)
    yield from _asks({"n 1e308": {"n": 1e308}, "n and min_tokens": {"n": 32, "min_tokens": 2000, "max_tokens": 2000}})


def _lengths() -> Iterator[Case]:
    yield from _asks({
        "max_tokens 2^63": {"max_tokens": 2**63},
        "max_tokens 2^63 - 1": {"max_tokens": 2**63 - 1},
        "min_tokens 10^9": {"min_tokens": 10**9, "max_tokens": 10**9},
        "min_tokens 4,000": {"min_tokens": 4000, "max_tokens": 4000},
        "max_tokens 0": {"max_tokens": 0},
        "both limits": {"max_tokens": 10**12, "max_completion_tokens": 1},
    })  # fmt: skip


def _lists() -> Iterator[Case]:
    made: dict[str, Parts] = {
        "stop, 500,000": parts('"stop": [', ('"a",', 500_000), '"b"]'),
        "stop, 16 of 256": parts('"stop": [', (f'"{"ab" * 128}",', 15), f'"{"b" * 256}"]'),
        "a stop of 7 MB": parts('"stop": ["', ("a", 7 * MB), '"]'),
        "stop_token_ids, 1,000,000": parts('"stop_token_ids": [', ("1,", 1_000_000), "2]"),
        "logit_bias of the same": parts('"logit_bias": {', ('"1": -100,', 300_000), '"2": 1}'),
        "tools, 50,000": parts('"tools": [', ('{"type":"function","function":{"name":"a"}},', 50_000), "1]"),
        "stream_options": parts('"stream": true, "stream_options": {', ('"include_usage": true,', 100_000), '"a": 1}'),
        "documents, 100,000": parts('"documents": [', ('{"text": "a"},', 100_000), "{}]"),
    }
    for name, text in made.items():
        yield Case(name, post(CHAT, chat(text)), connections=4)


def _types() -> Iterator[Case]:
    yield from _asks({
        "temperature [[]]": {"temperature": [[]]},
        "messages {}": {"messages": {}},
        "messages null": {"messages": None},
        "model 1": {"model": 1},
        "stream 'yes'": {"stream": "yes"},
        "seed 2^64": {"seed": 2**64},
        "top_logprobs 10^18": {"logprobs": True, "top_logprobs": 10**18},
        "tool_choice []": {"tool_choice": []},
        "user of 1 MB": {"user": "u" * MB},
    })  # fmt: skip


def _prompts() -> Iterator[Case]:
    def of(prompt: Any, **more: Any) -> Parts:
        return post(COMPLETIONS, parts(json.dumps({"model": "chat", "prompt": prompt, "max_tokens": 2} | more)))

    yield Case("128", of(["a"] * 128), connections=2)
    yield Case("128 of 32 answers", of(["a"] * 128, n=32))
    yield Case("100,000", of(["a"] * 100_000))
    yield Case("ids, 1,000,000", of([1] * 1_000_000))
    yield Case("ids that are none", of([10**18, -1, 2**63]))
    yield Case("lists in lists", of([[[1]]] * 1000))
    yield Case("lists of nothing", of([[]] * 100_000))


_TEXTS = {
    "one word": "a",
    "blanks": " ",
    "line feeds": "\\n",
    "combining marks": "e\u0301\u0302\u0303\u0304",
    "rare letters": "\U00010400\U0001d11e",
    "joined pictures": "\U0001f468\u200d\U0001f469\u200d",
    "a mix": "aB1 \u05d0\u4e2d-",
    "end tokens": "<|endoftext|>",
}


def _texts() -> Iterator[Case]:
    for name, unit in _TEXTS.items():
        text = (unit, 4 * MB // len(unit.encode()))
        body = parts('{"model": "demo", "max_tokens": 1, "prompt": "', text, '"}')
        yield Case(f"4 MB, {name}", post(COMPLETIONS, body), model=REAL, connections=2)
    many = parts('{"model": "demo", "max_tokens": 1, "prompt": "', ("a", 200_000), '"}')
    yield Case("200 kB, 32 at once", post(COMPLETIONS, many), model=REAL, connections=32)


def _tokenizing() -> Iterator[Case]:
    for name, unit in list(_TEXTS.items())[:4]:
        text = (unit, _LONGEST // len(unit.replace("\\n", "n")))
        yield Case(
            f"{name}, to the limit", post("/tokenize", parts('{"model": "demo", "prompt": "', text, '"}')), model=REAL
        )
    beyond = parts('{"model": "demo", "prompt": "', ("a", BODY - MB), '"}')
    yield Case("7 MB", post("/tokenize", beyond), model=REAL)
    for count in (131_072, 1_048_576, 2_000_000):
        ids = parts('{"model": "demo", "tokens": [', ("5,", count - 1), "5]}")
        yield Case(f"{count:,} ids", post("/detokenize", ids), model=REAL, connections=2)
    yield Case(
        "ids that are none",
        post("/detokenize", parts('{"model": "demo", "tokens": [-1, 1e9, 9999999999]}')),
        model=REAL,
    )


def _embeddings() -> Iterator[Case]:
    def of(given: Any, **more: Any) -> Parts:
        return post(EMBEDDINGS, parts(json.dumps({"model": "demo", "input": given} | more)))

    yield Case("2,048 texts", of(["word"] * 2048), model=REAL, connections=2)
    yield Case("2,048 in base64", of(["word $NUMBER"] * 2048, encoding_format="base64"), model=REAL, connections=2)
    yield Case("2,049", of(["a"] * 2049), model=REAL)
    yield Case("2,048 of 1,000 tokens", of([[5] * 1000] * 2048), model=REAL, connections=2)
    yield Case("400,000 of nothing", of([""] * 400_000), model=REAL)
    yield Case("dimensions 10^12", of("a", dimensions=10**12), model=REAL)


def _scores() -> Iterator[Case]:
    def of(path: str, *text: str | tuple[str, int]) -> Parts:
        return post(path, parts('{"model": "demo", ', *text, "}"))

    many = ('"word $NUMBER",', 2047), '"word"]'
    long = '"query": "', ("word ", 1500), '", "documents": ['
    yield Case("a long query, 2,048 documents", of(RERANK, *long, *many), model=REAL, connections=2)
    yield Case("2,048 pairs", of(SCORE, '"text_1": [', *many, ', "text_2": [', *many), model=REAL, connections=2)
    listed = '"query": "a", "documents": ['
    longest = f'"{"word " * 780}",'
    yield Case("2,048 of 3.9 kB", of(RERANK, listed, (longest, 2047), '"a"]'), model=REAL, connections=2)
    yield Case("130,000 documents", of(RERANK, listed, ('"a",', 129_999), '"a"]'), model=REAL)
    objects = (f'{{"text": "{"word " * 40}"}},', 29_999), "{}]"
    yield Case("30,000 objects", of(RERANK, '"top_n": 1000000000000000000, ', listed, *objects), model=REAL)


def _templates() -> Iterator[Case]:
    def of(*messages: dict[str, Any], **more: Any) -> Parts:
        return post(CHAT, parts(json.dumps({"model": "demo", "max_tokens": 1, "messages": list(messages)} | more)))

    yield Case(
        "code in a message",
        of({"role": "user", "content": "{% for a in range(10**9) %}{{ a }}{% endfor %}"}),
        model=REAL,
    )
    looping = "{% for a in range(10**9) %}{{ a }}{% endfor %}"
    yield Case("a template of its own", of({"role": "user", "content": "a"}, chat_template=looping), model=REAL)
    yield Case(
        "a template that multiplies",
        of({"role": "user", "content": "a"}, chat_template="{{ 'a' * 10**9 }}"),
        model=REAL,
    )
    yield Case("a role of 1 MB", of({"role": "r" * MB, "content": "a"}), model=REAL)
    yield Case("2,048 messages", of(*[{"role": "user", "content": "word " * 20}] * 2048), model=REAL)
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "[" * 100_000}}
    yield Case("calls in history", of({"role": "assistant", "content": None, "tool_calls": [call] * 50}), model=REAL)
    yield Case(
        "arguments for a template",
        of({"role": "user", "content": "a"}, chat_template_kwargs={"x": [[]] * 99_999}),
        model=REAL,
    )


def _left() -> Iterator[Case]:
    stream = post(CHAT, fields(stream=True, max_tokens=2000))
    yield Case("streams at the first byte", stream, connections=32, reads=Reads.FIRST)
    yield Case(
        "streams, a connection each",
        post(CHAT, fields(REAL, stream=True, max_tokens=500)),
        model=REAL,
        connections=16,
        reads=Reads.FIRST,
    )
    long = post(COMPLETIONS, parts('{"model": "demo", "max_tokens": 1, "prompt": "', ("word ", 1500), '"}'))
    yield Case("long prompts", long, model=REAL, connections=16, reads=Reads.FIRST)
    yield Case(
        "answers of 32", post(CHAT, fields(n=32, stream=True, max_tokens=2000)), connections=8, reads=Reads.FIRST
    )


def _logprobs() -> Iterator[Case]:
    yield from _asks({
        "20 of 32 answers": {"n": 32, "logprobs": True, "top_logprobs": 20, "max_tokens": 60},
        "20, streamed": {"logprobs": True, "top_logprobs": 20, "max_tokens": 400, "stream": True},
    })  # fmt: skip


def _beams() -> Iterator[Case]:
    yield from _asks({
        "32 wide": {"use_beam_search": True, "best_of": 32, "n": 32, "max_tokens": 100},
        "of 10^9": {"use_beam_search": True, "best_of": 10**9, "max_tokens": 10},
    }, 4)  # fmt: skip
