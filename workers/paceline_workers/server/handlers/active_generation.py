"""One request in the engine: the frames of its choices in, their pieces out, batch by batch."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from paceline_core.clock import Clock
from paceline_workers.messages import Timing, Tokens
from paceline_workers.server import phases
from paceline_workers.server.engine.client import EngineClient
from paceline_workers.server.engine.stream import EngineStream
from paceline_workers.server.openai.jobs import GenerationJob
from paceline_workers.server.phases import Stopwatch
from paceline_workers.server.text.output import Piece

Pieces = list[tuple[int, Piece]]


class ActiveGeneration:
    """`finished` once the last piece of each choice has been given out; `ends` are those that came here."""

    def __init__(
        self, job: GenerationJob, engine: EngineClient, stream: EngineStream, watch: Stopwatch, clock: Clock
    ) -> None:
        self.job = job
        self._engine = engine
        self._stream = stream
        self.watch = watch
        self._clock = clock
        self._open = {choice.submit.id: index for index, choice in enumerate(job.choices) if not choice.finish}
        self._ended = ended(job)
        self.ends: dict[int, str] = {}

    @classmethod
    @contextmanager
    def of(cls, job: GenerationJob, engine: EngineClient, watch: Stopwatch, clock: Clock) -> Iterator[Self]:
        """Submit what has not ended; leaving the block aborts what still runs. Raises RequestError."""
        with engine.submit(*(choice.submit for choice in job.choices if not choice.finish)) as stream:
            watch.submit(clock.monotonic())
            yield cls(job, engine, stream, watch, clock)

    @property
    def stream(self) -> EngineStream:
        """Its frames; failing it ends the run."""
        return self._stream

    @property
    def finished(self) -> bool:
        """Nothing is left to give out."""
        return not self._open and not self._ended

    async def pieces(self) -> Pieces:
        """The next output that has text or ends a choice, [] when all have ended. Raises RequestError."""
        pieces, self._ended = self._ended, []
        while self._open and not pieces:
            frames = await self._stream.read()
            self.watch.read(self._clock.monotonic(), frames)
            pieces = self._feed(frames)
        return pieces

    def spent(self, now: float | None = None) -> phases.Phases:
        """Seconds by phase until `now`, or this moment; those of the engine by the choice that took it longest."""
        now = self._clock.monotonic() if now is None else now
        timings = [choice.output.timing for choice in self.job.choices if choice.output.timing]
        return self.watch.phases(now, max(timings, key=_total, default=None))

    @property
    def running(self) -> int:
        """Choices that have not ended."""
        return len(self._open)

    def _feed(self, frames: list[Tokens]) -> Pieces:
        by_sequence: dict[str, list[Tokens]] = {}
        for frame in frames:
            by_sequence.setdefault(frame.id, []).append(frame)
        fed = [
            (sequence, self._piece(sequence, new)) for sequence, new in by_sequence.items() if sequence in self._open
        ]
        pieces = [(self._open[sequence], piece) for sequence, piece in fed if piece]
        for sequence, piece in fed:
            if piece and piece.finish:
                self.ends[self._open.pop(sequence)] = piece.finish
                self._engine.drop(self._stream, sequence)
        return pieces

    def _piece(self, sequence: str, frames: list[Tokens]) -> Piece | None:
        return self.job.choices[self._open[sequence]].output.feed(frames)


def ended(job: GenerationJob) -> Pieces:
    """The finish reasons that an earlier life of the stream did not get to tell."""
    return [
        (index, Piece("", choice.output.tokens, [], choice.finish, []))
        for index, choice in enumerate(job.choices)
        if choice.finish and not choice.sent
    ]


def _total(timing: Timing) -> float:
    return timing.queue + timing.batch_wait + timing.prefill + timing.decode
