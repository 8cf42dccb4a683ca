"""Turns the body of `/v1/completions` into a job, and writes the choices of its answer."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from paceline_workers.messages import PromptLogprob
from paceline_workers.server.openai.inputs import Encoding, ids_of, names_of, room
from paceline_workers.server.openai.jobs import GenerationJob, JobInput
from paceline_workers.server.openai.prompt_logprobs import PromptScores, WithPromptLogprobs
from paceline_workers.server.openai.requests import CompletionRequest
from paceline_workers.server.openai.response_writer import LOWEST, ObjectKind, PromptLogprobs, ResponseShape
from paceline_workers.server.openai.resume import split
from paceline_workers.server.openai.served_model import ServedModel
from paceline_workers.server.openai.submits import Prompt, Wanted, job_of, token_bytes_of
from paceline_workers.server.openai.token_ids import TokenTexts, WithTokenIds
from paceline_workers.server.openai.validation import parse
from paceline_workers.server.text.output import Logprob, Piece

COMPLETION_TOKENS = 16
"""OpenAI's default for `/v1/completions`."""
TEXT = ObjectKind("cmpl-", "text_completion", "text_completion")


class TextLogprobs(Struct, frozen=True):
    """Parallel lists, one entry a token; offsets count characters from the start of the text, including an echo.

    The log-probabilities of an echo's first token are null.
    """

    text_offset: list[int]
    token_logprobs: list[float | None]
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None]


class TextChoice(Struct, frozen=True):
    """A choice, streamed or not: only `finish_reason` differs."""

    index: int
    text: str
    logprobs: TextLogprobs | None = None
    finish_reason: str | None = None
    token_ids: list[int] | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET


class CompletionShape:
    """Writes plain text after `echo`, the prompt's text. `texts` is None unless the request asks for logprobs.

    `prompt`: the prompt whose tokens come first in the logprobs.
    """

    def __init__(
        self, index: int, texts: TokenTexts | None, echo: str = "", prompt: PromptScores | None = None
    ) -> None:
        self._index = index
        self._texts = texts
        self._echo = echo
        self._prompt = prompt

    def opening(self) -> list[Any]:
        """The prompt's text, if the request asks for an echo."""
        return [TextChoice(self._index, self._echo, self._logprobs([], self._prompt))] if self._echo else []

    def chunks(self, piece: Piece) -> list[Any]:
        """A chunk with the text, and one with the finish reason."""
        chunks = []
        if piece.text:
            chunks.append(TextChoice(self._index, piece.text, self._logprobs([piece])))
        if piece.finish:
            chunks.append(TextChoice(self._index, "", None, piece.finish))
        return chunks

    def skip(self, piece: Piece) -> None:
        """Advance the offsets over these tokens and, the first time, over the prompt's."""
        before = self._prompt.ids if self._prompt else ()
        self._prompt = None
        if self._texts is not None:
            for token in (*before, *piece.ids):
                self._texts.add(token)

    def whole(self, pieces: Sequence[Piece]) -> TextChoice:
        """The whole text."""
        text = self._echo + "".join(piece.text for piece in pieces)
        return TextChoice(self._index, text, self._logprobs(pieces, self._prompt), pieces[-1].finish)

    def _logprobs(self, pieces: Sequence[Piece], prompt: PromptScores | None = None) -> TextLogprobs | None:
        if self._texts is None:
            return None
        out = TextLogprobs([], [], [], [])
        for token, score in prompt.entries() if prompt else ():
            _add(out, self._texts, token, score)
        for piece in pieces:
            for token, (logprob, top) in zip(piece.ids, piece.logprobs, strict=False):
                _add(out, self._texts, token, (logprob, top))
        return out


def _add(out: TextLogprobs, texts: TokenTexts, token: int, score: Logprob | None) -> None:
    """Add the entry of a token: its likeliest candidates and the token itself, so one more than requested if it is not
    among them, as in OpenAI's API and vLLM. If candidates share a name, the token itself wins, else the likeliest one.
    """
    name = texts.name(token)
    out.text_offset.append(texts.offset)
    out.tokens.append(name)
    if score is None:
        out.token_logprobs.append(None)
        out.top_logprobs.append(None)
    else:
        logprob, top = score
        out.token_logprobs.append(max(logprob, LOWEST))
        named: dict[str, float] = {}
        for other, value in top:
            named.setdefault(texts.name(other), max(value, LOWEST))
        named[name] = max(logprob, LOWEST)
        out.top_logprobs.append(named)
    texts.add(token)


async def completion_job(model: ServedModel, asked: JobInput) -> GenerationJob:
    """A job from the body of `/v1/completions`. Raises RequestError."""
    body, resume = split(asked.body, asked.caller.resume)
    request = parse(CompletionRequest, body)
    context, tokenizer, limit = asked.started.max_model_len, model.tokenizer, request.max_tokens
    model.known(request.model)
    default = min(COMPLETION_TOKENS, asked.caller.max_tokens or COMPLETION_TOKENS)
    most = default if limit is None else limit
    how = Encoding(request.add_special_tokens, request.truncation(context, most), min(most, 1))
    all_ids = await ids_of(tokenizer, request.prompt, context, "prompt", how)
    logprobs = -1 if request.logprobs is None else request.logprobs

    def shape(index: int, scores: Sequence[PromptLogprob], ids: list[int], echo: str) -> ResponseShape:
        names, before, texts, scored = token_bytes_of(model, request), () if request.echo else ids, None, None
        if logprobs >= 0:
            as_ids, special = request.return_tokens_as_token_ids, not request.skip_special_tokens
            texts = TokenTexts(tokenizer, before, special=special, as_ids=as_ids)
            scored = PromptScores(ids, scores, logprobs, names) if request.echo else None
        made: ResponseShape = CompletionShape(index, texts, echo, scored)
        if request.prompt_logprobs is not None:
            made = WithPromptLogprobs(made, PromptScores(ids, scores, request.prompt_logprobs, names))
        return WithTokenIds(made, ids) if request.return_token_ids else made

    prompts = []
    for given, ids, name in zip(request.prompt, all_ids, names_of("prompt", len(all_ids)), strict=True):
        echo = ""
        if request.echo:
            echo = given if isinstance(given, str) and how.truncation is None else tokenizer.decode(ids)
        max_tokens = room(len(ids), limit, default, context, name)
        prompts.append(Prompt(ids, max_tokens, partial(shape, ids=ids, echo=echo)))
    decode = tokenizer.decode if request.skip_special_tokens else tokenizer.decode_all
    return await job_of(model, request, asked, resume, Wanted(prompts, logprobs, request.scored, TEXT, decode))
