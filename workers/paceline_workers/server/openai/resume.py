"""Resumes a stream that another worker lost (DESIGN 5), from the gateway's record of it.

A fresh detokenizer and stop matcher process the earlier tokens one by one, as the first worker did, and the output is
discarded: the client has it. So the stream continues without a gap at any token, even within a character or a stop
string. Tokens with text that was held back (half a tool call) are processed too, unless the client receives token ids
or log-probabilities: it has none for these tokens, so they are generated again. A choice that had already ended only
gets its finish reason, if the client lacks it.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from msgspec import structs

from paceline_core.errors import InvalidInput, RequestError
from paceline_core.wire import RESUME, Resume, ResumedChoice, decode
from paceline_workers.engine.scheduling import Request
from paceline_workers.messages import Started, Submit
from paceline_workers.server.openai.jobs import Choice
from paceline_workers.server.openai.validation import invalid

_BLOCK = 128
"""Tokens processed before the loop gets a turn: some milliseconds."""


def split(body: bytes, size: int) -> tuple[bytes, Resume | None]:
    """The client's body, and the resumption in its last `size` bytes; None if `size` is 0. Raises RequestError."""
    if not size:
        return body, None
    if size < 0:
        raise _invalid(f"`{RESUME}` must be how many bytes at the body's end are the resumption, 1 or more.")
    if size > len(body):
        raise _invalid(f"`{RESUME}` counts {size} bytes of a body of {len(body)}.")
    try:
        return body[:-size], decode(Resume, body[-size:])
    except InvalidInput as error:
        raise _invalid(f"The resumption is malformed: {error}.") from None


async def resumed(
    choices: Sequence[Choice], resume: Resume, started: Started, vocabulary: int, *, each_token: bool
) -> tuple[Choice, ...]:
    """The choices in their earlier state; `each_token`: the client gets data for each token. Raises RequestError."""
    if len(resume.choices) > len(choices):
        raise _invalid(f"The resumption holds {len(resume.choices)} choices, the request asks for {len(choices)}.")
    for choice, so_far in zip(choices, resume.choices, strict=False):
        if len(so_far.ids) > (most := choice.submit.max_tokens):
            words = f"The resumption holds {len(so_far.ids)} output ids of one choice; the request allows {most}."
            raise _invalid(words)
    if not all(0 <= token < vocabulary for choice in resume.choices for token in choice.ids):
        raise _invalid(f"The resumption holds a token id that is not in 0 to {vocabulary - 1}.")
    silent = [ResumedChoice(ids=[])] * (len(choices) - len(resume.choices))
    pairs = zip(choices, [*resume.choices, *silent], strict=True)
    return tuple([await _resumed(choice, so_far, started, each_token=each_token) for choice, so_far in pairs])


async def _resumed(choice: Choice, so_far: ResumedChoice, started: Started, *, each_token: bool) -> Choice:
    opened = bool(so_far.ids) or so_far.delivered is not None
    ids = so_far.ids[: so_far.delivered] if each_token else so_far.ids
    finish = finish_reason(choice.submit, ids, started)
    for start in range(0, max(len(ids), opened), _BLOCK):
        block, last = ids[start : start + _BLOCK], start + _BLOCK >= len(ids)
        choice.shape.skip(choice.output.replay(block, finish if last else ""))
        await asyncio.sleep(0)  # let the loop run other work
    # a stream that has begun is finished, however late; the client has the prompt's scores
    scores = -1 if opened else choice.submit.prompt_logprobs
    submit = structs.replace(choice.submit, produced=ids, deadline_s=0.0, prompt_logprobs=scores)
    ended = choice.output.stopped or finish
    return replace(choice, submit=submit, finish=ended, sent=so_far.ended, opened=opened)


def finish_reason(submit: Submit, ids: list[int], started: Started) -> str:
    """Why output of these `ids` has ended, by the engine's rules; "" if it has not."""
    request = Request.of(structs.replace(submit, produced=ids), started.eos_ids, now=0.0)
    return request.finish_reason(len(ids), started.max_model_len)


def _invalid(message: str) -> RequestError:
    return invalid(message, RESUME)
