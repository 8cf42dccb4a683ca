"""Log lines through pipes that are read late, never, or no more."""

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import TextIO

import pytest

from paceline_core.telemetry import BackgroundWriter

FULL = b"x" * (1 << 20) + b"\n"
"""More than a pipe takes."""


@pytest.fixture
def pipe() -> Iterator[tuple[int, TextIO]]:
    """Where to read, where to write."""
    reader, writer = os.pipe()
    stream = os.fdopen(writer, "w")
    yield reader, stream
    with contextlib.suppress(OSError):
        os.close(reader)
    with contextlib.suppress(OSError):
        stream.close()


def read(descriptor: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += os.read(descriptor, size - len(data))
    return data


def test_lines_come_out_in_their_order(pipe: tuple[int, TextIO]) -> None:
    outlet = BackgroundWriter(pipe[1])
    for number in range(100):
        outlet.put(b"%d\n" % number)
    assert outlet.flush()
    assert read(pipe[0], 290).split() == [b"%d" % number for number in range(100)]
    assert outlet.lost == 0
    outlet.close()


def test_nobody_waits_for_a_pipe_that_nobody_reads_and_what_does_not_fit_is_counted(pipe: tuple[int, TextIO]) -> None:
    outlet = BackgroundWriter(pipe[1], limit=len(FULL) + 4)
    outlet.put(FULL)
    outlet.put(b"in\n")
    outlet.put(b"out\nout\n", lines=2)
    assert outlet.lost == 2
    assert not outlet.flush(0.01)
    assert read(pipe[0], len(FULL) + 3) == FULL + b"in\n"
    assert outlet.flush()
    outlet.put(b"again\n")
    assert read(pipe[0], 6) == b"again\n"
    assert outlet.lost == 2
    outlet.close()


def test_a_descriptor_that_does_not_block_loses_nothing(pipe: tuple[int, TextIO]) -> None:
    os.set_blocking(pipe[1].fileno(), False)
    outlet = BackgroundWriter(pipe[1])
    outlet.put(FULL)
    assert read(pipe[0], len(FULL)) == FULL
    assert outlet.flush()
    assert outlet.lost == 0
    outlet.close()


def test_lines_for_a_reader_that_has_gone_are_counted(pipe: tuple[int, TextIO]) -> None:
    outlet = BackgroundWriter(pipe[1])
    os.close(pipe[0])
    outlet.put(b"a\n")
    assert outlet.flush()
    assert outlet.lost == 1
    outlet.close()


def test_a_closed_outlet_takes_nothing(pipe: tuple[int, TextIO]) -> None:
    outlet = BackgroundWriter(pipe[1])
    outlet.put(b"last\n")
    outlet.close()
    outlet.put(b"late\n")
    assert outlet.lost == 1
    assert read(pipe[0], 5) == b"last\n"


def test_a_stream_in_memory_is_written_to_at_once() -> None:
    stream = io.StringIO()
    BackgroundWriter(stream).put(b"a\n")
    assert stream.getvalue() == "a\n"


LOGS = "from paceline_core.telemetry import configure, get_logger\nconfigure('t')\n"


@pytest.mark.real
def test_a_process_that_ends_has_written_its_last_line() -> None:
    code = f"{LOGS}get_logger('a').info('last words')"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert '"message": "last words"' in ended.stderr


@pytest.mark.real
def test_a_process_logs_on_and_ends_though_nobody_reads(pipe: tuple[int, TextIO]) -> None:
    code = f"{LOGS}[get_logger('a').info('x' * 1000) for _ in range(2000)]\nprint('served')"
    ended = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=pipe[1], text=True, check=True, timeout=60
    )
    assert ended.stdout == "served\n"
