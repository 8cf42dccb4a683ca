"""Frames survive any cutting of the byte stream, and an oversized one is refused before it is held."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline_workers.messages import Abort, FrameReader, frame, to_engine


@given(st.lists(st.binary(max_size=40), max_size=6), st.lists(st.integers(0, 300), max_size=8))
def test_frames_come_out_whole_however_the_stream_is_cut(bodies: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    edges = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    reader = FrameReader()
    out = [body for start, end in pairwise(edges) for body in reader.feed(stream[start:end])]
    assert out == bodies


def test_a_message_is_read_back_as_it_was_framed() -> None:
    (body,) = FrameReader().feed(frame(Abort("a1")))
    assert to_engine.decode(body) == Abort("a1")


def test_a_frame_over_the_limit_is_refused_at_its_length() -> None:
    with pytest.raises(ValueError, match="over the limit of 10"):
        FrameReader(limit=10).feed((11).to_bytes(4, "big"))
