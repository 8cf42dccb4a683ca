"""What the gateway benchmark's upstreams answer, and what its client makes of it."""

from benchmarks.gateway.script import Script
from tests.every import cases

from paceline_gateway.request.sse_scanner import SseScanner, StreamJournal
from paceline_gateway.request.types import TokenUsage

SCRIPT = Script(tokens=4)


def unchunked(writes: list[bytes]) -> list[bytes]:
    """What stands in the first chunk of each write."""
    pieces = []
    for write in writes:
        size, _, rest = write.partition(b"\r\n")
        pieces.append(rest[: int(size, 16)])
    return pieces


def answer(script: Script = SCRIPT) -> bytes:
    return b"".join(unchunked(script.writes(comments=False)))


def test_a_peer_gets_the_same_events_in_the_same_writes_as_a_gateway_of_ours_less_the_comments() -> None:
    ours, theirs = (unchunked(SCRIPT.writes(comments=comments)) for comments in (True, False))
    bare = [b"\n".join(line for line in piece.split(b"\n") if not line.startswith(b":")) for piece in ours]
    assert bare == theirs
    assert len(ours) == SCRIPT.tokens + 1


def test_our_gateway_reads_the_comments_so_that_every_token_could_be_resumed() -> None:
    meter, told = TokenUsage(), StreamJournal(1 << 20)
    scan = SseScanner(meter, told)
    passed = b"".join(scan.feed(piece) for piece in unchunked(SCRIPT.writes(comments=True)))
    assert passed == answer()
    assert scan.done
    assert meter.output == SCRIPT.tokens
    resume = told.resume()
    assert resume is not None
    assert (resume.choices[0].ids, resume.choices[0].ended) == ([1000, 1001, 1002, 1003], True)


def test_a_whole_answer_has_nothing_to_complain_of_streamed_or_not() -> None:
    assert SCRIPT.complaint(200, answer()) is None
    whole = Script(tokens=4, stream=False)
    assert whole.complaint(200, whole.whole()) is None


@cases(
    ("body", "words"),
    [
        (answer(Script(tokens=3)), "3 of 4 words"),
        (answer(Script(tokens=5)), "5 of 4 words"),
        (answer().replace(b"w000001", b"w000002"), "not in order"),
        (answer().replace(b"data: [DONE]\n\n", b""), "[DONE]"),
        (answer() + b"data: [DONE]\n\n", "[DONE]"),
        (answer() + b'data: {"error":{}}\n\n', "[DONE]"),
        (answer().replace(b"completion_tokens", b"other"), "without usage"),
        (b"", "0 of 4 words"),
    ],
)
def test_a_client_complains_of_whatever_is_not_as_it_was_sent(body: bytes, words: str) -> None:
    assert words in str(SCRIPT.complaint(200, body))


def test_a_client_complains_of_a_status_and_says_with_which_words() -> None:
    assert SCRIPT.complaint(429, b"slow down") == "429: b'slow down'"
