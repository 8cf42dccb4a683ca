"""The attacks of `benchmarks.attacks`: what the list holds, and some of them against a real gateway and a real worker.

How long they take is the benchmark's affair. Here each connection has to get an answer that says what was wrong, and
nothing of them may be left behind.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import httpx
import pytest
from benchmarks.attacks import catalogue
from benchmarks.attacks.attacker import Sent
from benchmarks.attacks.case import Case, Key, Model, Port, length, written
from benchmarks.attacks.stage import Stage, stage
from benchmarks.gateway import ours
from benchmarks.harness import ROOT
from tests.worker.processes import until

KINDS, CASES = 40, 200
LONGEST = 16 << 20
LIMITS = {"header_timeout_s": 0.5, "body_timeout_s": 0.5, "keepalive_timeout_s": 0.5}
LIMIT_S, CONNECTIONS, SIZE = 10.0, 3, 4 << 20
ANSWER = re.compile(r"(1|2|4)\d\d|503|close 1\d\d\d")
SENT = (
    ("http: bodies on routes without one", "8 MB at GET /health"),
    ("http: bodies on routes without one", "chunks of 2"),
    ("http: bodies without a key", "7 MB, key none"),
    ("http: small chunks", "of 2"),
    ("http: chunk extensions", "4096 bytes each"),
    ("http: slow heads", "32 as fast as bytes go"),
    ("http: slow bodies", "32 as fast as bytes go"),
    ("http: many headers", "without end"),
    ("http: other protocols", "TLS"),
    ("http: two readings", "length and chunks"),
    ("body: brackets as arrays", "120 deep side by side"),
    ("body: content parts", "250,000"),
    ("body: from a tenant with nothing left", "messages"),
    ("asked: how many answers", "n 1000000000000000"),
    ("websocket: empty fragments", "as fast as they go"),
    ("websocket: fragments of a byte", "of 1"),
    ("websocket: wrong frames", "a ping of 126"),
    ("grammar: multipleOf", "multipleOf 5e+06"),
    ("worker: bodies", "8 MB of arrays"),
    ("worker: WebSocket", "empty fragments"),
    ("worker: tokens", "expires at Infinity"),
    ("admin: bodies and heads", "headers without end"),
    ("admin: bodies and heads", "8 MB of brackets"),
)
"""One of each way in which something is used up."""


def test_there_are_at_least_40_kinds_and_200_cases_and_no_two_send_the_same() -> None:
    kinds = catalogue.kinds()
    cases = [case for kind in kinds for case in kind.cases]
    assert len({kind.name for kind in kinds}) == len(kinds) >= KINDS
    assert len({replace(case, name="") for case in cases}) == len(cases) >= CASES
    assert all(kind.cases and kind.aim for kind in kinds)
    assert [kind.name for kind in kinds if len({case.name for case in kind.cases}) < len(kind.cases)] == []


def test_each_case_is_bounded_goes_to_a_port_that_is_there_and_is_as_long_as_it_says() -> None:
    names = {name: f"${name}" for name in ("GUEST", "ZERO", "WRONG")}  # so that their length stays
    for case in (case for kind in catalogue.kinds() for case in kind.cases):
        assert case.size <= LONGEST, case
        assert 0 < case.connections <= 2000, case
        assert 0 < case.limit <= 300 << 20, case
        assert case.port is Port.PUBLIC or case.key is Key.NONE, case
        for sent in (case.opening, case.repeated):
            assert case.size > 1 << 16 or len(written(sent, names, 1)) == length(sent), case


def test_the_list_ends_with_its_counts_which_the_documents_tell() -> None:
    *lines, last = catalogue.lines()
    cases = sum(int(line.split()[0]) for line in lines)
    assert last == f"{cases} cases of {len(lines)} kinds"
    assert f"{cases} cases of {len(lines)} kinds" in (ROOT / "docs" / "gateway.md").read_text()
    assert f"{len(lines)} kinds ({cases} cases)" in (ROOT / "SECURITY.md").read_text()


@pytest.mark.real
def test_every_attacker_is_answered_and_nothing_of_it_is_left() -> None:
    with stage([Model.EMULATED], LIMITS) as ready:
        ready.choose(Model.EMULATED)
        ready.settle()
        wrong = {case.name: sent.json() for case, sent in _attacks(ready) if not _answered(sent)}
        felt = ready.felt()
        ended = ready.ended()
        ready.neighbour.end()
        _nothing_held(ready)
    assert wrong == {}
    assert ended == []
    assert felt.pieces > 0
    assert (felt.broken, felt.refused, felt.complaints) == (0, 0, [])


def _attacks(ready: Stage) -> Iterator[tuple[Case, Sent]]:
    cases = {(kind.name, case.name): case for kind in catalogue.kinds() for case in kind.cases}
    for name in SENT:
        case = cases[name]
        opening = tuple((text.replace(b'"demo"', b'"chat"'), count) for text, count in case.opening)
        size = max(SIZE, CONNECTIONS * case.size)
        few = replace(case, opening=opening, connections=CONNECTIONS, limit=size, rate=None)
        yield few, ready.attack(few, LIMIT_S, turns=1)


def _answered(sent: Sent) -> bool:
    """All connections, with something that is defined."""
    counts = Counter(sent.answers)
    counts.pop("ended", None)
    closes = sum(count for answer, count in counts.items() if answer.startswith("close"))
    defined = all(ANSWER.fullmatch(answer) for answer in counts)
    return defined and sum(counts.values()) >= sent.opened and closes >= counts["101"]


def _nothing_held(ready: Stage) -> None:
    held = ("paceline_gateway_request_body_bytes", "paceline_gateway_connections", "paceline_quota_reserved_tokens")
    url = f"http://127.0.0.1:{ours.admin_port(ready.gateway)}/metrics"
    until(lambda: not any(_sum(httpx.get(url).text, name) for name in held))


def _sum(text: str, name: str) -> float:
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if re.split("[{ ]", line)[0] == name)
