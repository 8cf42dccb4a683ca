"""The scan of a passing stream: what is forwarded, what is learned, however the bytes are cut into packets."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.every import cases

from paceline_core.errors import Code, RequestError, error_response
from paceline_core.registry.enums import AbortReason, ResumeReason
from paceline_gateway.request.sse_scanner import (
    CODE_LIMIT,
    LINE_LIMIT,
    SseScanner,
    StreamJournal,
    read_code,
    read_server_timing,
    read_usage,
)
from paceline_gateway.request.types import TokenUsage, WorkerPhases


def chunk(text: str | None, **more: object) -> bytes:
    delta = {"role": "assistant", "content": ""} if text is None else {"content": text}
    payload = {"id": "c", "choices": [{"index": 0, "delta": delta}], **more}
    return b"data: " + json.dumps(payload, separators=(",", ":")).encode() + b"\n\n"


COUNTS = b'{"prompt_tokens":20,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":16}}'
USAGE = b'data: {"choices":[],"usage":' + COUNTS + b"}\n\n"
PHASES = b': phases {"queue":0.5,"prefill":0.25,"decode":1.5,"unknown":9}\n'
DONE = b"data: [DONE]\n\n"
OURS = chunk(None) + b": p 0 11\n" + chunk("a") + b": p 1 12,13\n" + chunk("b\n: not a comment") + USAGE + PHASES + DONE
CLEAN = chunk(None) + chunk("a") + chunk("b\n: not a comment") + USAGE + DONE


def scan(*packets: bytes) -> tuple[bytes, SseScanner, TokenUsage]:
    meter = TokenUsage()
    scanner = SseScanner(meter)
    out = b"".join([scanner.feed(packet) for packet in packets])
    return out + scanner.finish(), scanner, meter


def test_comments_are_read_and_not_forwarded() -> None:
    out, scanner, meter = scan(OURS)
    assert out == CLEAN
    assert scanner.done
    assert not scanner.failed
    assert (meter.prompt, meter.output, meter.cached) == (20, 3, 16)
    assert meter.worker == WorkerPhases(queue=0.5, prefill=0.25, decode=1.5)


@given(st.lists(st.integers(0, len(OURS)), max_size=12))
def test_the_cuts_between_packets_do_not_matter(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(OURS)]
    out, scanner, meter = scan(*(OURS[a:b] for a, b in pairwise(places)))
    assert out == CLEAN
    assert scanner.done
    assert (meter.prompt, meter.output) == (20, 3)


def test_nothing_is_forwarded_before_the_first_content() -> None:
    scanner = SseScanner(TokenUsage())
    assert scanner.feed(chunk(None)) == b""
    assert not scanner.began
    assert scanner.feed(b": p 0 11\n" + chunk("a")) == chunk(None) + chunk("a")
    assert scanner.began


def test_an_engine_that_streams_something_else_begins_with_its_second_event() -> None:
    scanner = SseScanner(TokenUsage())
    assert scanner.feed(b'data: {"odd":1}\n\n') == b""
    assert scanner.feed(b'data: {"odd":2}\n\n') == b'data: {"odd":1}\n\ndata: {"odd":2}\n\n'


def test_a_stream_without_any_content_is_handed_over_at_its_end() -> None:
    out, scanner, _ = scan(b"data: [DONE]\n\n")
    assert out == DONE
    assert scanner.done


@pytest.mark.parametrize("text", [chunk("hi"), b'data: {"choices":[{"index":0,"text": "hi"}]}\n\n'])
def test_content_is_known_in_both_dialects(text: bytes) -> None:
    scanner = SseScanner(TokenUsage())
    scanner.feed(text)
    assert scanner.began


def test_tokens_are_counted_by_position_where_the_worker_sends_it() -> None:
    scanner = SseScanner(TokenUsage())
    scanner.feed(b": p 0 1,2,3\n" + chunk("abc"))
    assert scanner.fresh == 3
    scanner.feed(b": p 3 4\n" + chunk("d"))
    assert scanner.fresh == 1


ROLE, END = chunk(None), b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
TAIL = b": usage " + COUNTS + b"\n" + PHASES + USAGE + DONE
STREAM = [
    (b": p 0 11 2\n", ROLE + chunk("a")),
    (b": p 1 12,13\n", chunk("b")),
    (b": p 3 14 0\n", b""),
    (b": p 4 15,16 3\n", chunk("c") + chunk("d") + chunk("e")),
    (b": p 6 17 2 end\n", chunk("f") + END),
]
SHORT = [*STREAM[:3], (b": p 4 15 1 end\n", END)]
CHOICES = [
    (b": c 0 0 11 2\n", ROLE + chunk("a")),
    (b": c 1 0 21,22 2\n", ROLE + chunk("x")),
    (b": c 0 1 12\n", chunk("b")),
    (b": c 1 2 - 1 end\n", END),
    (b": c 0 2 13 2 end\n", chunk("c") + END),
]


@given(
    st.sampled_from([STREAM, SHORT, CHOICES]),
    st.lists(st.integers(0, 2000), max_size=12),
    st.integers(0, 2000),
)
def test_wherever_a_stream_is_cut_the_scanner_reports_what_has_passed(
    pieces: list[tuple[bytes, bytes]], cuts: list[int], end: int
) -> None:
    whole = b"".join(line + events for line, events in pieces) + TAIL
    end = min(end, len(whole))
    places = [0, *sorted(min(cut, end) for cut in cuts), end]
    told = StreamJournal(1000)
    told.begin(b'{"id":"c","created":1')
    scanner = SseScanner(TokenUsage(), told, resumed=True)
    out = b"".join([scanner.feed(whole[a:b]) for a, b in pairwise(places)])
    passed = [line for line, _ in pieces if whole.index(line) + len(line + dict(pieces)[line]) <= end]
    assert scanner.done == (end == len(whole))
    assert out == b"".join(dict(pieces)[line] for line in passed) + (USAGE + DONE if scanner.done else b"")
    expected = StreamJournal(1000)
    expected.begin(b'{"id":"c","created":1')
    for line in passed:
        expected.add(line)
    assert told.resume() == expected.resume()


def test_the_events_of_one_comment_pass_together_or_not_at_all() -> None:
    told = StreamJournal(1000)
    scanner = SseScanner(TokenUsage(), told)
    scanner.feed(b": p 0 1\n" + chunk("a"))
    assert scanner.feed(b": p 1 2 2\n" + chunk("b")) == b""
    assert scanner.fresh == 0
    assert scanner.feed(chunk("c")) == chunk("b") + chunk("c")


def test_the_end_passes_as_a_whole_so_that_usage_is_not_sent_twice() -> None:
    scanner = SseScanner(TokenUsage())
    scanner.feed(b": p 0 1\n" + chunk("a"))
    assert scanner.feed(TAIL.removesuffix(DONE)) == b""
    assert scanner.feed(DONE) == USAGE + DONE
    assert scanner.done


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b": moved drain\n", ResumeReason.DRAIN),
        (b": moved evacuate\n", ResumeReason.EVACUATE),
        (b": moved engine\n", ResumeReason.ENGINE),
        (b": moved for reasons of the future\n", ResumeReason.CONNECTION),
    ],
)
def test_a_stream_that_is_given_up_says_why(line: bytes, reason: ResumeReason) -> None:
    scanner = SseScanner(TokenUsage())
    assert scanner.feed(b": p 0 1\n" + chunk("a") + line) == chunk("a")
    assert scanner.moved is reason


def test_a_stream_that_goes_on_passes_from_its_first_byte_on() -> None:
    scanner = SseScanner(TokenUsage(), StreamJournal(1000), resumed=True)
    assert scanner.feed(b": p 7 1\n" + chunk("a")) == chunk("a")


def test_a_comment_that_claims_the_events_of_the_next_one_is_not_believed() -> None:
    told = StreamJournal(1000)
    scanner = SseScanner(TokenUsage(), told)
    out = scanner.feed(b": p 0 1 2\n" + chunk("a") + b": p 1 2\n" + chunk("b"))
    assert out == chunk("a") + chunk("b")
    assert told.abort_reason is AbortReason.INCONSISTENT


def test_a_piece_without_end_is_passed_on_and_cannot_go_on_elsewhere() -> None:
    told = StreamJournal(1000)
    scanner = SseScanner(TokenUsage(), told)
    scanner.feed(b": p 0 1\n" + chunk("a"))
    long = b"x" * (LINE_LIMIT + 1)
    assert scanner.feed(b": p 1 2\n" + long) == long
    assert told.abort_reason is AbortReason.INCONSISTENT


def test_tokens_of_a_foreign_engine_are_counted_by_events() -> None:
    scanner = SseScanner(TokenUsage())
    scanner.feed(chunk("a") + chunk("b"))
    assert scanner.fresh == 2


def test_an_error_event_is_noticed() -> None:
    _, scanner, _ = scan(chunk("a"), b'data: {"error":{"message":"x"}}\n\n')
    assert scanner.failed


def test_a_model_that_speaks_of_errors_is_not_one() -> None:
    _, scanner, _ = scan(chunk('data: {"error"'))
    assert not scanner.failed
    assert not scanner.done


def test_an_endless_line_is_not_buffered_without_limit() -> None:
    scanner = SseScanner(TokenUsage())
    scanner.feed(chunk("a"))
    assert scanner.feed(b"x" * (LINE_LIMIT + 1)) == b"x" * (LINE_LIMIT + 1)


@pytest.mark.parametrize(
    "line", [b": p\n", b": p x y\n", b": p -1 2\n", b": phases nonsense\n", b": phases []\n", b":\n"]
)
def test_a_malformed_comment_is_dropped_and_believed_in_nothing(line: bytes) -> None:
    out, _, meter = scan(chunk("a"), line + chunk("b"))
    assert out == chunk("a") + chunk("b")
    assert (meter.output, meter.worker) == (2, None)  # by events, where no position is told


def test_the_prompt_is_known_with_the_first_event_and_not_forwarded() -> None:
    meter, told = TokenUsage(), StreamJournal(1000)
    scanner = SseScanner(meter, told)
    assert scanner.feed(b": prompt 20 16\n: p 0 11 2\n" + ROLE + chunk("a")) == ROLE + chunk("a")
    assert (meter.prompt, meter.cached, meter.output) == (20, 16, 1)


def test_a_stream_that_goes_on_keeps_what_its_first_worker_found_cached() -> None:
    meter = TokenUsage(prompt=20, cached=4)
    scanner = SseScanner(meter, StreamJournal(1000), resumed=True)
    scanner.feed(b": prompt 20 20\n: p 3 14\n" + chunk("d") + TAIL)
    scanner.finish()
    assert (meter.prompt, meter.cached) == (20, 4)


def test_a_foreign_stream_with_running_usage_is_counted_at_any_moment() -> None:
    meter = TokenUsage()
    scanner = SseScanner(meter)
    for output in (2, 5):
        scanner.feed(chunk("ab", usage={"prompt_tokens": 9, "completion_tokens": output}))
        assert (meter.prompt, meter.output) == (9, output)


def test_a_null_usage_in_each_event_leaves_the_events_to_be_counted() -> None:
    meter = TokenUsage()
    scanner = SseScanner(meter)
    for output in (1, 2):
        scanner.feed(chunk("ab", usage=None))
        assert meter.output == output


@pytest.mark.parametrize("line", [b": prompt\n", b": prompt x 1\n", b": prompt -1 0\n", b": prompt 9999999999 0\n"])
def test_a_malformed_prompt_is_not_believed(line: bytes) -> None:
    _, _, meter = scan(line + b": p 0 1\n" + chunk("a"))
    assert (meter.prompt, meter.output) == (0, 1)


def test_usage_is_found_in_a_whole_answer_and_not_in_its_text() -> None:
    meter = TokenUsage()
    text = json.dumps({"text": '"usage":{"prompt_tokens":99}'})
    read_usage((text[:-1] + ', "usage": {"prompt_tokens": 5, "completion_tokens": 6}}').encode(), meter)
    assert (meter.prompt, meter.output, meter.cached) == (5, 6, 0)


@cases(
    ("text", "code"),
    [
        (b'{"error":{"message":"m","code":"draining"}}', Code.DRAINING),
        (b'{"error":{"code":"never_heard_of"}}', None),
        (b'{"error":{"code":["draining"]}}', None),
        (b'{"error":{"code":null}}', None),
        (b'{"error":"draining"}', None),
        (b'["error"]', None),
        (b'{"error":{"code":"draining"}', None),
        (b"\xff", None),
        (b"", None),
        (b'{"error":{"code":"draining"}}' + b" " * CODE_LIMIT, None),
    ],
)
def test_the_code_of_an_error_is_one_that_we_know_or_none(text: bytes, code: Code | None) -> None:
    assert read_code(text) is code


def test_a_null_usage_is_ignored() -> None:
    meter = TokenUsage(prompt=3)
    read_usage(b'{"usage":null}', meter)
    assert meter.prompt == 3


def test_server_timing_is_in_milliseconds() -> None:
    meter = TokenUsage()
    read_server_timing(b"queue;dur=1.500, prefill;dur=20, other;dur=3, decode;dur=x", meter)
    assert meter.worker == WorkerPhases(queue=0.0015, prefill=0.02)


def test_a_server_timing_of_others_says_nothing() -> None:
    meter = TokenUsage()
    read_server_timing(b"cdn;dur=1", meter)
    assert meter.worker is None


def test_a_stream_that_never_has_content_is_not_buffered_without_limit() -> None:
    scanner, piece, out = SseScanner(TokenUsage()), b"event: nothing\n\n" * 4096, 0
    for fed in range(1, 41):
        out += len(scanner.feed(piece))
        assert fed * len(piece) - out <= LINE_LIMIT + len(piece)
    assert scanner.began


ENDINGS = {
    kind: b'event: %b\ndata: {"type":"%b"}\n\n' % (kind, kind)
    for kind in (b"response.completed", b"response.incomplete", b"message_stop", b"response.failed")
}


@pytest.mark.parametrize("kind", ENDINGS)
def test_the_event_that_ends_a_stream_ends_it_without_done(kind: bytes) -> None:
    """OpenAI and several engines send no `[DONE]` there; and its own text may hold the words."""
    event = ENDINGS[kind]
    begun = b'event: response.output_text.delta\ndata: {"delta":"event: %b\\n\\n"}\n\n' % kind
    whole = begun + event
    for cut in range(len(begun), len(whole)):
        out, scanner, _ = scan(whole[:cut])
        assert (scanner.done, scanner.failed and kind != b"response.failed") == (False, False), out
        out, scanner, _ = scan(whole[:cut], whole[cut:])
        assert (out, scanner.done) == (whole, True)
    assert scanner.failed is (kind == b"response.failed")


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses", "/v1/completions"])
def test_the_code_of_an_error_event_is_read_in_every_routes_form(path: str) -> None:
    error = RequestError(Code.ENGINE_FAILED, "The engine failed.")
    _, scanner, _ = scan(chunk("a"), error_response(error, path).event)
    assert (scanner.failed, scanner.error) == (True, Code.ENGINE_FAILED)
