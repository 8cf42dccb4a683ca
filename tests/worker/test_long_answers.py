"""Answers that take long to write down, and where that happens (`server.openai.jobs`)."""

import threading

import pytest

from paceline_workers.server.openai.jobs import INLINE, written
from paceline_workers.server.text.output import Piece

CANDIDATES = 20
PER_TOKEN = CANDIDATES + 1
MOST = INLINE // PER_TOKEN


def piece(tokens: int, candidates: int = CANDIDATES) -> Piece:
    """So many tokens, each with its own score and those of candidates."""
    return Piece("a", 0, [1] * tokens, "", [(-1.0, [(2, -2.0)] * candidates)] * tokens)


@pytest.mark.parametrize(
    ("pieces", "long", "beside"),
    [
        ([piece(MOST)], False, False),
        ([piece(MOST), piece(1)], False, True),
        ([piece(INLINE, 0)], False, False),
        ([piece(INLINE, 0), piece(1, 0)], False, True),
        ([Piece("a", 0, [1] * 10 * INLINE, "stop", [])], False, False),
        ([], True, True),
    ],
)
async def test_an_answer_with_many_scores_is_written_beside_the_loop(
    pieces: list[Piece], long: bool, beside: bool
) -> None:
    threads = list[int]()

    def write(told: list[Piece]) -> bytes:
        threads.append(threading.get_ident())
        return b"%d" % len(told)

    assert await written(write, pieces, pieces, long=long) == b"%d" % len(pieces)
    assert (threads != [threading.get_ident()]) is beside
