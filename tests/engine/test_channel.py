"""The engine's end of the socket: whole frames, never blocked, and an end in every case."""

import socket

import pytest
from tests.engine.manual import ManualTimer
from tests.engine.peer import Peer

from paceline_workers.engine.channel import OUTBOX_LIMIT, PATIENCE, Channel, PeerGone
from paceline_workers.messages import Abort, Failed, Shutdown, frame

Ends = tuple[socket.socket, Peer]


def test_messages_arrive_whole_and_in_order_however_they_were_cut(ends: Ends) -> None:
    channel = Channel(ends[0], ManualTimer())
    data = frame(Abort("a")) + frame(Abort("b"))
    ends[1].socket.sendall(data[:7])
    assert channel.receive(0.0) == []
    ends[1].socket.sendall(data[7:])
    assert channel.receive(1.0) == [Abort("a"), Abort("b")]


def test_messages_that_came_during_a_wait_are_kept(ends: Ends) -> None:
    channel = Channel(ends[0], ManualTimer())
    ends[1].send(Abort("a"))
    channel.wait(1.0)
    assert channel.receive(9.0) == [Abort("a")]


def test_what_is_sent_is_written_at_the_next_flush(ends: Ends) -> None:
    channel = Channel(ends[0], ManualTimer())
    channel.send(Failed("why"))
    assert ends[1].read(wait=False) == []
    channel.flush()
    assert ends[1].read() == [Failed("why")]


def test_shutdown_is_the_end(ends: Ends) -> None:
    channel = Channel(ends[0], ManualTimer())
    ends[1].send(Shutdown())
    with pytest.raises(PeerGone, match="asked for the end"):
        channel.receive(1.0)


def test_the_end_of_file_is_the_end(ends: Ends) -> None:
    channel = Channel(ends[0], ManualTimer())
    ends[1].close()
    with pytest.raises(PeerGone, match="closed the connection"):
        channel.receive(1.0)


def test_writing_to_a_closed_peer_is_the_end(ends: Ends) -> None:
    channel = Channel(ends[0], ManualTimer())
    ends[1].close()
    channel.send(Failed("why"))
    with pytest.raises(PeerGone, match="is gone"):
        channel.flush()


@pytest.mark.parametrize("junk", [b"\xff" * 8, b"\x00\x00\x00\x02\xc1\xc1", b"\x00\x00\x00\x01\x01"])
def test_a_malformed_frame_is_the_end(ends: Ends, junk: bytes) -> None:
    channel = Channel(ends[0], ManualTimer())
    ends[1].socket.sendall(junk)
    with pytest.raises(PeerGone, match="malformed"):
        channel.receive(1.0)


def test_a_peer_that_does_not_read_fills_the_channel_and_counts_as_gone_after_a_while(ends: Ends) -> None:
    timer = ManualTimer()
    channel = Channel(ends[0], timer)
    while not channel.full:
        channel.send(Failed("x" * 100_000))
        channel.flush()
    timer.pause(PATIENCE + 1)
    with pytest.raises(PeerGone, match="has read nothing"):
        channel.flush()


def test_a_peer_that_reads_again_gets_everything(ends: Ends) -> None:
    channel = Channel(ends[0], ManualTimer())
    sent = 0
    while not channel.full:
        channel.send(Failed("x" * 100_000))
        sent += 1
    received = 0
    while received < sent:
        channel.wait(1.0)
        received += len(ends[1].read(wait=False))
    assert sent * 100_000 > OUTBOX_LIMIT
    assert not channel.full
