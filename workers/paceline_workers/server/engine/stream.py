"""The frames of one request's sequences on their way from the engine to its one reader.

A slow reader finds all that came meanwhile in one batch, so a stalled client costs at most UNREAD_LIMIT tokens, their
candidates counted like them: some 7 MB. Beyond that the request is given up, which frees its KV pages for clients that
do read. A last frame is always taken: it frees them itself, and those of a beam search bring whole answers. Those of a
prompt's own tokens do not count: there are no more of them than `openai.prompt_logprobs` lets be asked for.
"""

import asyncio

from paceline_core.errors import Code, RequestError
from paceline_workers.messages import Tokens

UNREAD_LIMIT = 65_536


class EngineStream:
    """Frames in the order of their steps; each sequence ends with a frame with `finish`, or all with an error."""

    def __init__(self, *sequences: str, unread_limit: int = UNREAD_LIMIT) -> None:
        self.sequences = sequences
        self.running = set(sequences)
        self._unread_limit = unread_limit
        self._unread: list[Tokens] = []
        self._count = 0
        self._error: RequestError | None = None
        self._wake = asyncio.Event()

    @property
    def finished(self) -> bool:
        """Nothing more comes from the engine."""
        return not self.running

    def put(self, frame: Tokens) -> bool:
        """From the engine: append, or give up on a reader that is too far behind; False if nobody wants more."""
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
        """End with `error` after the frames already here; the first error stands."""
        self._error = self._error or error
        self._wake.set()

    async def read(self) -> list[Tokens]:
        """All frames not yet read, at least one; waits for it. Raises the RequestError that ended the stream.

        Unlimited in itself: the watchdog fails every stream of an engine that falls silent.
        """
        while not self._unread:
            if self._error is not None:
                raise self._error
            self._wake.clear()
            await self._wake.wait()
        frames, self._unread, self._count = self._unread, [], 0
        return frames
