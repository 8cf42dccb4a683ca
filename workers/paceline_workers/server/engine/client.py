"""The engine as the rest of the server sees it: it may die, and comes back.

`run` starts an engine, supervises it, and starts the next with growing delay when it ends or hangs. Invariant: every
stream ends, with its last frame or with an error, whatever happens to the process. An engine that sends `Failed`, or
that dies LOAD_ATTEMPTS times before it ever started, ends `run`: retrying would only hide the reason. The client does
not replay the sequences of a dead engine: the gateway retries or resumes them.

A slow reader of a stream gets all frames since its last read in one batch, so a stalled client costs at most
UNREAD_LIMIT tokens, counting candidates as tokens: some 7 MB. Beyond that its request is ended, which frees KV pages
for clients that do read. A last frame is always accepted: it frees the pages itself, and those of a beam search carry
whole answers. Scores of a prompt do not count: `openai.prompt_logprobs` bounds them.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterator
from enum import StrEnum

from paceline_core.clock import Clock
from paceline_core.errors import Code, InvalidInput, PacelineError, RequestError
from paceline_core.telemetry import get_logger
from paceline_core.wire import MoveReason
from paceline_workers.messages import Abort, Failed, FromEngine, Heartbeat, Started, Submit, Tokens
from paceline_workers.server.engine.link import EngineHandle, Launch
from paceline_workers.server.watchdog import CpuActivity, hung, restart_delay, silence

_log = get_logger(__name__)
LOAD_ATTEMPTS = 5
LOAD_LIMIT_S = 3600.0
HEALTHY_S = 60.0
UNREAD_LIMIT = 65_536
_CODES = {MoveReason.ENGINE: Code.ENGINE_FAILED}


class Moved(RequestError):
    """The stream moves to another worker, though it has not failed; other clients see an ordinary error."""

    def __init__(self, reason: MoveReason, message: str) -> None:
        super().__init__(_CODES.get(reason, Code.DRAINING), message)
        self.reason = reason


class EngineStream:
    """The frames of one request's sequences for its one reader, in the order of their steps.

    Each sequence ends with a frame with `finish`, or all end with an error. `running`: the sequences still running.
    """

    def __init__(self, *sequences: str, unread_limit: int = UNREAD_LIMIT) -> None:
        self.sequences = sequences
        self.running = set(sequences)
        self._unread_limit = unread_limit
        self._unread: list[Tokens] = []
        self._count = 0
        self._error: RequestError | None = None
        self._wake = asyncio.Event()

    def put(self, frame: Tokens) -> bool:
        """Append the engine's frame, or end a stream whose reader lags too far; False if the stream has ended."""
        if self._error is not None:
            return False
        self._count += len(frame.ids) + sum(len(candidates) for _, candidates in frame.logprobs)
        if self._count > self._unread_limit and not frame.finish:
            words = f"{self._count} tokens and candidates were not read; the stream was given up"
            self.fail(RequestError(Code.CLIENT_CLOSED, words))
            return False
        if frame.finish:
            self.running.discard(frame.id)
        self._unread.append(frame)
        self._wake.set()
        return True

    def fail(self, error: RequestError) -> None:
        """End with `error` after the frames that are already here; the first error wins."""
        self._error = self._error or error
        self._wake.set()

    async def read(self) -> list[Tokens]:
        """All unread frames, at least one; waits for it. Raises the RequestError that ended the stream.

        The wait has no limit of its own: the watchdog fails every stream of an engine that falls silent.
        """
        while not self._unread:
            if self._error is not None:
                raise self._error
            self._wake.clear()
            await self._wake.wait()
        frames, self._unread, self._count = self._unread, [], 0
        return frames


class EngineState(StrEnum):
    """The state of the current engine process."""

    LOADING = "loading"
    UP = "up"
    DOWN = "down"


Listener = Callable[[EngineState | Started | Heartbeat], None]
Warm = Callable[["EngineClient"], Awaitable[None]]
"""Warms each loaded engine before it is up; limits its own time. Raises InvalidInput if no engine can do it."""
OnPrompt = Callable[[Collection[str], int], None]
"""A prompt with these prefix keys begins (1) or has ended (-1)."""


class EngineClient:
    """Submits sequences, returns their streams, and keeps an engine process running."""

    def __init__(
        self,
        launch: Launch,
        clock: Clock,
        *,
        watchdog_s: float,
        warm: Warm | None = None,
        on_prompt: OnPrompt = lambda _keys, _step: None,
    ) -> None:
        self._launch = launch
        self._clock = clock
        self._watchdog_s = watchdog_s
        self._warm = warm
        self._on_prompt = on_prompt
        self._warming: asyncio.Task[None] | None = None
        self._handle: EngineHandle | None = None
        self._streams: dict[str, EngineStream] = {}
        self._heard_at = clock.monotonic()
        self._work = CpuActivity(self._heard_at)
        self._busy_since: float | None = None
        self._up_at: float | None = None
        self._failed: PacelineError | None = None
        self._listeners: list[Listener] = []
        self.state = EngineState.DOWN
        self.started: Started | None = None
        self.restarts = 0

    @property
    def pid(self) -> int | None:
        """The current process, None while there is none."""
        return self._handle.pid if self._handle else None

    @property
    def silence(self) -> float:
        """Seconds for which the engine has been silent although it has work."""
        return silence(self._clock.monotonic(), self._heard_at, self._busy_since)

    @property
    def alive(self) -> bool:
        """False only while a hung engine is not replaced yet."""
        now = self._clock.monotonic()
        return not hung(now, self._heard_at, self._work.at, self._busy_since, self._watchdog_s)

    @property
    def since_heard(self) -> float:
        """Seconds since the last frame of any kind."""
        return self._clock.monotonic() - self._heard_at

    def listen(self, listener: Listener) -> None:
        """Call `listener` with each change of state, each start and each heartbeat."""
        self._listeners.append(listener)

    def ready(self) -> Started:
        """What the engine reported at its start; raises RequestError `no_capacity` while none is up."""
        if self.started is None or self._handle is None or self.state is not EngineState.UP:
            raise RequestError(Code.NO_CAPACITY, "The model is not loaded yet; try again shortly.", retry_after=1.0)
        return self.started

    @contextlib.contextmanager
    def submit(self, *submits: Submit) -> Iterator[EngineStream]:
        """Start the sequences of one request; leaving the block aborts those that still run. Raises RequestError."""
        self.ready()
        with self.begin(*submits) as stream:
            yield stream

    @contextlib.contextmanager
    def begin(self, *submits: Submit) -> Iterator[EngineStream]:
        """Like `submit`, for an engine that is loaded but perhaps not warm."""
        stream = EngineStream(*(submit.id for submit in submits))
        self._streams |= dict.fromkeys(stream.sequences, stream)
        if self._streams and self._busy_since is None:
            self._busy_since = self._clock.monotonic()
        for submit in submits:
            if not submit.answers or submit.answers[0] == submit.id:  # a beam search is submitted once, by its first
                self._send(submit)
        keys = tuple(dict.fromkeys(key for submit in submits for key, _ in submit.prefix_keys))
        self._on_prompt(keys, 1)
        try:
            yield stream
        finally:
            self._on_prompt(keys, -1)
            for sequence in stream.sequences:
                self.drop(stream, sequence)

    def drop(self, stream: EngineStream, sequence: str) -> None:
        """The sequence has no reader any more: have the engine free what it holds."""
        if self._streams.pop(sequence, None) is None:
            return  # dropped before, or its engine is gone
        if sequence in stream.running:
            stream.running.discard(sequence)
            self._send(Abort(sequence))
        if not self._streams:
            self._busy_since = None

    def fail_all(self, error: RequestError) -> None:
        """End every open stream with `error`."""
        for stream in self._streams.values():
            stream.fail(error)

    async def run(self) -> None:
        """Keep an engine running until cancelled. Raises PacelineError if no engine can start."""
        failures = 0
        while True:
            up_for, status = await self._one_life()
            if self._failed:
                raise self._failed
            failures = 1 if up_for >= HEALTHY_S else failures + 1
            if self.started is None and failures >= LOAD_ATTEMPTS:
                raise PacelineError(f"the engine ended {failures} times while loading; last exit status {status}")
            self.restarts += 1
            _log.error("the engine ended; starting another", extra={"status": status, "failures": failures})
            await self._clock.sleep(restart_delay(failures))

    async def _one_life(self) -> tuple[float, int]:
        """Start an engine and supervise it until it ends: (seconds it was up, exit status)."""
        self._heard_at, self._up_at = self._clock.monotonic(), None
        self._enter(EngineState.LOADING)
        try:
            handle = self._handle = await self._launch(self._receive)
            watchdog = asyncio.create_task(self._watch(handle))
            try:
                status = await handle.ended()
            finally:
                watchdog.cancel()
        except asyncio.CancelledError:
            if self._handle is not None:
                await self._handle.stop()
            raise
        finally:
            self._handle = None
            if self._warming is not None:
                self._warming.cancel()
                self._warming = None
            self._lose()
        return 0.0 if self._up_at is None else self._clock.monotonic() - self._up_at, status

    def _lose(self) -> None:
        self._enter(EngineState.DOWN)
        self.fail_all(Moved(MoveReason.ENGINE, "The engine ended before the answer was complete."))
        self._streams, self._busy_since = {}, None

    async def _watch(self, handle: EngineHandle) -> None:
        """Kill `handle` when it hangs, while serving or while loading."""
        begin = self._clock.monotonic()
        self._work = CpuActivity(begin, reported_at=begin)
        while self.alive and (self.state is not EngineState.LOADING or self._clock.monotonic() - begin < LOAD_LIMIT_S):
            await self._clock.sleep(min(self._watchdog_s / 4, 1.0))
            self._work.report(handle.cpu_seconds(), self._clock.monotonic())
        _log.error("the engine hangs and is killed", extra={"pid": handle.pid, "silence_s": self.silence})
        handle.kill()
        self._lose()  # at once: the kernel may take long to end the process

    def _receive(self, message: FromEngine) -> None:
        self._heard_at = self._clock.monotonic()
        match message:
            case Tokens():
                if (stream := self._streams.get(message.id)) and not stream.put(message):
                    for sequence in stream.sequences:  # at once: a reader stuck in a write would free the pages late
                        self.drop(stream, sequence)
            case Started():
                self.started, self._up_at = message, self._clock.monotonic()
                self._emit(message)
            case Heartbeat():
                self._emit(message)
                if self.state is EngineState.LOADING and self._up_at is not None:
                    self._warm_up()  # not earlier: the worker cannot tell yet how long its steps take
            case Failed():
                wrong = message.field
                self._failed = InvalidInput(wrong, message.message) if wrong else PacelineError(message.message)

    def _warm_up(self) -> None:
        """Become up, at once or when warming is done."""
        if self._warm is None:
            self._enter(EngineState.UP)
        elif self._warming is None:
            self._warming = asyncio.create_task(self._up_when_warm(self._warm))

    async def _up_when_warm(self, warm: Warm) -> None:
        try:
            await warm(self)
        except InvalidInput as error:
            self._failed = error
            if self._handle is not None:
                self._handle.kill()
            return
        if self.state is EngineState.LOADING:
            self._enter(EngineState.UP)

    def _send(self, message: Submit | Abort) -> None:
        if self._handle is not None:
            self._handle.send(message)

    def _enter(self, state: EngineState) -> None:
        self.state = state
        self._emit(state)

    def _emit(self, event: EngineState | Started | Heartbeat) -> None:
        for listener in self._listeners:
            listener(event)
