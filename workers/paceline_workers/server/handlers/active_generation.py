"""One request in the engine: reads the frames of its choices, writes its answer batch by batch, and times its phases.

The engine reports its own phases with a sequence's last frame. A sequence that ended in this process first (at a stop
string) has none, so its engine time is split at its first token. `post` is the rest: the phases add up exactly.

Headers and status wait for the first tokens, so a failure before them is still a plain HTTP error that a gateway can
retry. A later failure becomes an SSE error event. A client that leaves fails the engine's stream, so every request ends
in one place, the reader of that stream: by its last token, by the engine, by drain, or by its client.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from itertools import chain

from paceline_core.clock import Clock
from paceline_core.errors import Code, RequestError
from paceline_core.registry import Phase
from paceline_core.telemetry import Histogram
from paceline_core.wire import VOCABULARY
from paceline_workers.messages import Timing, Tokens
from paceline_workers.server.engine.client import EngineClient, EngineStream
from paceline_workers.server.http.exchange import RequestExchange
from paceline_workers.server.openai.jobs import Events, GenerationJob, written
from paceline_workers.server.text.output import Piece
from paceline_workers.server.trial_runs import TrialRun

HEADERS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache", "x-accel-buffering": "no"}
Phases = Mapping[Phase, float]
Pieces = list[tuple[int, Piece]]


class TokenMeter:
    """Token measurements of all requests of a worker: the gaps between tokens, and their number."""

    __slots__ = ("itl", "output", "ttft")

    def __init__(self, ttft: Histogram, itl: Histogram) -> None:
        self.ttft = ttft
        self.itl = itl
        self.output = 0


@dataclass(slots=True)
class Stopwatch:
    """The times of one request, in monotonic seconds: at `submitted` its body is parsed and the engine has it; `first`
    and `last` are the times of its first and last tokens so far; `first` is None before any.
    """

    came: float
    meter: TokenMeter | None = None
    submitted: float = 0.0
    first: float | None = None
    last: float = 0.0

    def read(self, now: float, frames: Sequence[Tokens]) -> None:
        """Record frames, of one step or of several. The steps share the gap since the last frames equally."""
        count = len(frames[0].ids) if len(frames) == 1 else sum(len(frame.ids) for frame in frames)
        if not count:
            return
        since, self.last = self.last, now
        meter = self.meter
        if meter is not None:
            meter.output += count
        if self.first is None:
            self.first = now
            if meter is not None:
                meter.ttft.observe(now - self.came)
        elif meter is not None:
            sequences = 1 if len(frames) == 1 else len({frame.id for frame in frames})
            meter.itl.observe((now - since) * sequences / count)

    def phases(self, now: float, timing: Timing | None) -> Phases:
        """Seconds by phase from the request's headers to `now`."""
        first = self.first or now
        engine = timing or Timing(queue=0.0, batch_wait=0.0, prefill=first - self.submitted, decode=now - first)
        known = {
            Phase.TOKENIZE: self.submitted - self.came,
            Phase.QUEUE: engine.queue,
            Phase.BATCH_WAIT: engine.batch_wait,
            Phase.PREFILL: engine.prefill,
            Phase.DECODE: engine.decode,
        }
        return known | {Phase.POST: max(now - self.came - sum(known.values()), 0.0)}


class ActiveGeneration:
    """`open`: the choices that have not ended, by sequence; `ends`: the finish reasons of those that ended here.

    `stream`: the frames; failing it ends the request.
    """

    def __init__(
        self, job: GenerationJob, engine: EngineClient, stream: EngineStream, watch: Stopwatch, clock: Clock
    ) -> None:
        self.job = job
        self._engine = engine
        self.stream = stream
        self.watch = watch
        self._clock = clock
        self.open = {choice.submit.id: index for index, choice in enumerate(job.choices) if not choice.finish}
        self.ends: dict[int, str] = {}
        self._ended = [  # finish reasons that the client still lacks after a resumption
            (index, Piece("", choice.output.tokens, [], choice.finish, []))
            for index, choice in enumerate(job.choices)
            if choice.finish and not choice.sent
        ]

    async def pieces(self) -> Pieces:
        """The next output that has text or ends a choice, [] when all have ended. Raises RequestError."""
        pieces, self._ended = self._ended, []
        while self.open and not pieces:
            frames = await self.stream.read()
            self.watch.read(self._clock.monotonic(), frames)
            by_sequence: dict[str, list[Tokens]] = {}
            for frame in frames:
                by_sequence.setdefault(frame.id, []).append(frame)
            for sequence, new in by_sequence.items():
                if sequence in self.open and (piece := self.job.choices[self.open[sequence]].output.feed(new)):
                    pieces.append((self.open[sequence], piece))
            for index, piece in pieces:
                if piece.finish:
                    sequence = self.job.choices[index].submit.id
                    self.ends[self.open.pop(sequence)] = piece.finish
                    self._engine.drop(self.stream, sequence)
        return pieces

    def spent(self, now: float | None = None) -> Phases:
        """Seconds by phase until `now`, by default the present; engine phases are those of the slowest choice."""
        timings = [choice.output.timing for choice in self.job.choices if choice.output.timing]
        longest = max(timings, key=lambda t: t.queue + t.batch_wait + t.prefill + t.decode, default=None)
        return self.watch.phases(self._clock.monotonic() if now is None else now, longest)


@asynccontextmanager
async def failed_when_client_leaves(stream: EngineStream, exchange: RequestExchange) -> AsyncIterator[None]:
    """During the block, a client that leaves fails the engine's stream, whose reader then ends the request."""
    gone = asyncio.create_task(exchange.gone())
    gone.add_done_callback(
        lambda task: None if task.cancelled() else stream.fail(RequestError(Code.CLIENT_CLOSED, "The client left."))
    )
    try:
        yield
    finally:
        gone.cancel()


@contextmanager
def reported(end: Callable[[str], None]) -> Iterator[None]:
    """Calls `end` with how the block ends: "" or the code of its error. Raises what the block raises."""
    error = ""
    try:
        yield
    except RequestError as raised:
        error = raised.code
        raise
    except BaseException:
        error = Code.INTERNAL_ERROR
        raise
    finally:
        end(error)


async def write_stream(run: ActiveGeneration, trial: TrialRun, exchange: RequestExchange, vocabulary: str) -> None:
    """Write server-sent events as the pieces arrive. Raises RequestError."""
    headers = HEADERS | {VOCABULARY: vocabulary} if exchange.movable else HEADERS
    events, reply = Events(run.job, trusted=exchange.caller.trusted), exchange.reply
    more = True
    while more:
        pieces = await run.pieces()
        if trial.left:
            trial.brought(sum(len(piece.ids) for _, piece in pieces))
        data = await written(events.pieces, pieces, (piece for _, piece in pieces), long=run.job.long)
        more = bool(run.open)
        if not more:
            data += events.end(run.spent())
        if not reply.started:
            await reply.start(HTTPStatus.OK, headers)
        await reply.write(data, more=more)


async def write_whole(run: ActiveGeneration, trial: TrialRun, exchange: RequestExchange) -> None:
    """Write one JSON answer when all pieces have arrived. Raises RequestError."""
    pieces_by_choice: list[list[Piece]] = [[] for _ in run.job.choices]
    while pieces := await run.pieces():
        for index, piece in pieces:
            trial.brought(len(piece.ids))
            pieces_by_choice[index].append(piece)
    body = await written(run.job.whole, pieces_by_choice, chain.from_iterable(pieces_by_choice), long=run.job.long)
    timing = {"server-timing": server_timing(run.spent())} if exchange.caller.trusted else {}
    await exchange.reply.whole(HTTPStatus.OK, {"content-type": "application/json", **timing}, body)


def server_timing(spent: Phases) -> str:
    """The value of the `Server-Timing` header, in milliseconds as its standard requires."""
    return ", ".join(f"{phase.value};dur={value * 1000:.3f}" for phase, value in spent.items())
