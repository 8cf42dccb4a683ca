"""Runs in each traced process before anything else: records every call of a product function.

The file stands alone: a copy named `sitecustomize.py` in a folder of PYTHONPATH is imported by Python itself at start.
`<pid>.functions` has the command line, then one function a line. `<pid>.calls` is a mapped file of `CALL`s
(nanoseconds, function, caller, thread), so a killed process leaves what it recorded. A coroutine that is resumed counts
as called. The caller is the next product function up the stack, `NONE` when the event loop called. `<pid>.starts` lists
the programs that the process started. A forked child records nothing before it executes a program of its own.
"""

import itertools
import mmap
import os
import struct
import sys
import threading
import time
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

FOLDER, ROOT = "WAYS_FOLDER", "WAYS_ROOT"
CALL = struct.Struct("<QIIII")
NONE = 0xFFFFFFFF
SPACE = CALL.size << 25
"""Bytes of each process's file, which is sparse."""


class Recorder:
    """The functions of one process and its calls."""

    def __init__(self, base: Path, root: str) -> None:
        with base.with_suffix(".calls").open("w+b") as file:
            file.truncate(SPACE)
            self._calls = mmap.mmap(file.fileno(), SPACE)
        self._names = base.with_suffix(".functions").open("w", buffering=1)
        self._names.write("\0".join(sys.orig_argv) + "\n")
        self._starts = base.with_suffix(".starts").open("w", buffering=1)
        self._places = itertools.count(0, CALL.size)
        self._root = root
        self._ours: dict[str, bool] = {}
        self._numbers: dict[int, tuple[int, CodeType]] = {}
        self._lock = threading.Lock()

    def trace(self, frame: FrameType, _event: str, _argument: object) -> None:
        """Record one call; the function itself is not traced line by line."""
        number = self._number(frame.f_code)
        if number is None:
            return
        place = next(self._places)
        if place < SPACE:
            thread = threading.get_ident() & NONE
            CALL.pack_into(self._calls, place, time.monotonic_ns(), number, self._caller(frame), thread, 0)

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note a program that this process starts."""
        if event == "subprocess.Popen":
            self._starts.write(f"{time.monotonic_ns()}\t{' '.join(map(str, arguments[1]))}\n")

    def _caller(self, frame: FrameType) -> int:
        above = frame.f_back
        while above is not None:
            number = self._number(above.f_code)
            if number is not None:
                return number
            above = above.f_back
        return NONE

    def _number(self, code: CodeType) -> int | None:
        path = code.co_filename
        ours = self._ours.get(path)
        if ours is None:
            parts = path.removeprefix(self._root).split("/")
            ours = path.startswith(self._root) and len(parts) > 2 and parts[1].startswith("paceline_")
            self._ours[path] = ours
        if not ours:
            return None
        known = self._numbers.get(id(code))
        return self._new(code) if known is None else known[0]

    def _new(self, code: CodeType) -> int:
        with self._lock:
            number = len(self._numbers)
            self._numbers[id(code)] = number, code  # kept, so that its id names no other
            self._names.write(f"{code.co_filename.removeprefix(self._root)}\t{code.co_qualname}\n")
            return number


def install(folder: Path, root: str) -> None:
    """Record this process from now on, in all its threads."""
    recorder = Recorder(folder / str(os.getpid()), root)
    os.register_at_fork(after_in_child=lambda: sys.settrace(None))
    sys.addaudithook(recorder.audit)
    threading.settrace(recorder.trace)
    sys.settrace(recorder.trace)


if FOLDER in os.environ:
    install(Path(os.environ[FOLDER]), os.environ[ROOT])
