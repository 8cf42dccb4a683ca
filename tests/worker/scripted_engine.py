"""An engine without a model: it speaks the real frames and does what its script says, faults included.

`python -m tests.worker.scripted_engine SCRIPT_JSON --fd N` runs it as the worker's engine process; tests that need no
process run it in a thread over the same kind of socketpair.
"""

import os
import select
import socket
import struct
import sys
import time
from collections import deque
from pathlib import Path
from typing import Literal

import msgspec

from paceline_core.registry import RequestClass
from paceline_workers.messages import (
    Abort,
    Failed,
    FrameReader,
    FromEngine,
    Heartbeat,
    PromptLogprob,
    Shutdown,
    Started,
    StepStats,
    Submit,
    Timing,
    Tokens,
    frame,
    to_engine,
)

EOS = 0
BEAT_S = 0.02
DECODE_FAULT_AT = 3


class Script(msgspec.Struct, frozen=True):
    """What to answer and how to break.

    `hold` goes on beating but makes no progress, `hang` falls silent, `crash` exits, `garbage` sends bytes that are no
    frame, `error` fails the one sequence. With `once`, the fault strikes only while that file does not exist.
    """

    reply: list[int] = []  # EOS follows
    others: list[list[int]] = []  # what choices 1, 2, ... answer, instead of `reply`
    mirror: bool = False  # answer with the prompt's own ids
    times: int = 1
    per_frame: int = 1
    pause_s: float = 0.0
    logprobs: bool = False
    context: int = 2048
    cached: int = 0
    embedding: int = 0  # numbers in a vector: the prompt's length, then its first ids
    field: str = ""  # what `failed` blames
    fault: Literal["", "hold", "hang", "crash", "garbage", "error", "failed"] = ""
    phase: Literal["", "loading", "queued", "prefill", "decode"] = ""
    once: str = ""
    log: str = ""


class _Ended(Exception):
    """The peer is gone, or the script ends the engine."""


class Sequence(msgspec.Struct):
    """One submitted sequence and how far it is."""

    submit: Submit
    position: int = 0


class ScriptedEngine:
    """Serves one connected socket until it closes."""

    def __init__(self, sock: socket.socket, script: Script) -> None:
        self._socket = sock
        self._script = script
        self._replies = [[*reply * script.times, EOS] for reply in (script.reply, *script.others)]
        self._reader = FrameReader()
        self._live: dict[str, Sequence] = {}
        self._steps = 0
        self._recent: deque[StepStats] = deque(maxlen=64)
        self._next_beat = 0.0
        self._armed = script.fault != "" and not (script.once and Path(script.once).exists())

    def run(self) -> None:
        """To the end of the connection or of the script."""
        try:
            self._load()
            while True:
                self._turn()
        except (_Ended, OSError):
            self._socket.close()

    def _load(self) -> None:
        if self._due("loading"):
            if self._script.fault == "failed":
                self._send(Failed("model.safetensors: is truncated; download it again", self._script.field))
                raise _Ended
            self._strike()
        self._send(
            Started(
                pages=64,
                page_tokens=16,
                page_bytes=1024,
                max_model_len=self._script.context,
                slots=8,
                eos_ids=[EOS],
                emulated=False,
                stages={"weights": 0.5},
                embedding=self._script.embedding,
            )
        )

    def _turn(self) -> None:
        self._read(self._script.pause_s if self._moving() else BEAT_S)
        for sequence in list(self._live.values()):
            self._advance(sequence)
        self._beat()

    def _moving(self) -> bool:
        return bool(self._live) and not (self._armed and self._script.fault == "hold")

    def _read(self, timeout: float) -> None:
        readable, _, _ = select.select([self._socket], [], [], timeout)
        if not readable:
            return
        data = self._socket.recv(1 << 16)
        if not data:
            raise _Ended
        for body in self._reader.feed(data):
            self._take(to_engine.decode(body))

    def _take(self, message: Submit | Abort | Shutdown) -> None:
        self._note(message)
        match message:
            case Submit():
                self._live[message.id] = Sequence(message, len(message.produced))
            case Abort():
                self._live.pop(message.id, None)
            case Shutdown():
                raise _Ended

    def _note(self, message: Submit | Abort | Shutdown) -> None:
        if self._script.log:
            with Path(self._script.log).open("a") as log:
                log.write(type(message).__name__ + "\n")

    def _advance(self, sequence: Sequence) -> None:
        if self._stuck(sequence):
            return
        submit, start = sequence.submit, sequence.position
        if submit.embed:
            self._embed(submit)
            return
        if submit.beams:
            self._tell_beams(submit)
            return
        if submit.prompt_logprobs >= 0 and start == 0:
            self._score(submit)
        reply = self._replies[min(submit.choice, len(self._replies) - 1)]
        output = ([*submit.prompt, EOS] if self._script.mirror else reply)[: submit.max_tokens]
        ids = output[start : start + self._script.per_frame]
        sequence.position += len(ids)
        ended = sequence.position >= len(output)
        finish = ("stop" if ids[-1:] == [EOS] else "length") if ended else ""
        top = max(submit.sampling.logprobs, 0)
        self._send(
            Tokens(
                id=submit.id,
                position=start,
                ids=ids,
                finish=finish,
                cached=self._script.cached,
                logprobs=[(-0.5, [(token, -0.5)] * top) for token in ids] if submit.sampling.logprobs >= 0 else [],
                timing=Timing(0.001, 0.0, 0.002, 0.003) if ended else None,
            )
        )
        self._steps += 1
        self._recent.append(StepStats(0.01, len(submit.prompt), len(ids), 1, 10, lateness=0.0))
        if ended:
            del self._live[submit.id]

    def _score(self, submit: Submit) -> None:
        """Each token of the prompt is less likely than the one before; the candidates are 1, 2, ... in two frames."""
        best = [(token, -0.1 * token) for token in range(1, submit.prompt_logprobs + 1)]
        scores: list[PromptLogprob] = [(-float(place), place + 1, best) for place in range(1, len(submit.prompt))]
        for part in (scores[:1], scores[1:]):
            self._send(Tokens(submit.id, 0, [], prompt_logprobs=part))

    def _tell_beams(self, submit: Submit) -> None:
        for name, reply in zip(submit.answers, self._replies, strict=False):
            ids = reply[: submit.max_tokens]
            self._send(Tokens(name, 0, ids, "stop", cached=self._script.cached, logprobs=[(-0.5, [])] * len(ids)))
        del self._live[submit.id]

    def _embed(self, submit: Submit) -> None:
        numbers = [len(submit.prompt), *submit.prompt, *[0] * self._script.embedding][: self._script.embedding]
        vector = struct.pack(f"<{len(numbers)}f", *numbers)
        self._send(Tokens(submit.id, 0, [], "stop", vector=vector, timing=Timing(0.001, 0.0, 0.002, 0.0)))
        del self._live[submit.id]

    def _stuck(self, sequence: Sequence) -> bool:
        """Strike the fault where the script wants it; True while the sequence makes no progress."""
        phase = "decode" if sequence.position >= DECODE_FAULT_AT else "queued" if self._due("queued") else "prefill"
        if not self._due(phase):
            return False
        if self._script.fault == "error":
            self._send(Tokens(sequence.submit.id, sequence.position, [], "error", "the prompt is poison"))
            del self._live[sequence.submit.id]
        elif self._script.fault != "hold":
            self._strike()
        return True

    def _due(self, phase: str) -> bool:
        return self._armed and self._script.phase == phase

    def _strike(self) -> None:
        if self._script.once:
            Path(self._script.once).touch()
        match self._script.fault:
            case "crash":
                raise _Ended
            case "garbage":
                self._socket.sendall(b"\xff\xff\xff\xff")
            case _:
                self._wait_for_the_end(beating=self._script.fault == "hold")

    def _wait_for_the_end(self, *, beating: bool) -> None:
        """Silent (or beating) until the connection closes or the process is killed."""
        while True:
            readable, _, _ = select.select([self._socket], [], [], BEAT_S)
            if readable and not self._socket.recv(1 << 16):
                raise _Ended
            if beating:
                self._beat()

    def _beat(self) -> None:
        now = time.monotonic()
        if now < self._next_beat:
            return
        self._next_beat = now + BEAT_S
        queued = self._armed and self._script.phase == "queued"
        count = len(self._live)
        self._send(
            Heartbeat(
                steps=self._steps,
                running=0 if queued else count,
                waiting={RequestClass.INTERACTIVE: count if queued else 0},
                queued_tokens={RequestClass.INTERACTIVE: 0},
                oldest_wait=0.0,
                pages_free=60 - count,
                pages_cached=4,
                preemptions=0,
                evicted_pages=0,
                lookup_tokens=0,
                hit_tokens=0,
                step_time=[0.01, 0.0001, 0.0, 0.0, 0.0, 5.0],
                recent=list(self._recent),
            )
        )
        self._recent.clear()

    def _send(self, message: FromEngine) -> None:
        self._socket.sendall(frame(message))


def main(argv: list[str]) -> int:
    """The process: script, `--fd`, number."""
    script = msgspec.json.decode(argv[0], type=Script)
    ScriptedEngine(socket.socket(fileno=int(argv[2])), script).run()
    return 3 if script.fault == "crash" else 0


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))
