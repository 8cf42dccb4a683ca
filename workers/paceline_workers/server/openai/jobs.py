"""From a request body to a job: what the engine gets, and how its tokens are written back."""

import secrets
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from msgspec import UNSET, UnsetType, structs

from paceline_core.wire import RESUME, Resume
from paceline_workers.messages import PromptLogprob, Sampling, Started, Submit
from paceline_workers.server.http.caller import Caller
from paceline_workers.server.openai.chat_responses import CHAT
from paceline_workers.server.openai.completion_responses import TEXT, CompletionShape
from paceline_workers.server.openai.inputs import Encoding, Input, ids_of, names_of, room
from paceline_workers.server.openai.prompt_logprobs import PromptScores, WithPromptLogprobs
from paceline_workers.server.openai.prompt_logprobs import check as check_scores
from paceline_workers.server.openai.requests import (
    CompletionRequest,
    GenerateRequest,
    StreamOptions,
    parse,
)
from paceline_workers.server.openai.response_writer import (
    AnswerWriter,
    ChunkWriter,
    ObjectKind,
    PromptLogprobs,
    ResponseShape,
    TokenBytes,
    Usage,
    WritingShape,
)
from paceline_workers.server.openai.resume import resumed, split
from paceline_workers.server.openai.sampling_params import Choice, followed, sampling, searched
from paceline_workers.server.openai.sampling_params import best as best_candidates
from paceline_workers.server.openai.served_model import ServedModel
from paceline_workers.server.openai.token_ids import TokenTexts, WithTokenIds, as_id
from paceline_workers.server.openai.validation import invalid
from paceline_workers.server.text.output import Decode, Piece, TextOutput
from paceline_workers.server.text.reasoning import ReasoningMarkers

INLINE = 1024
"""Tokens of scored prompts, or scores of an answer, that are written down at once: some milliseconds."""
COMPLETION_TOKENS = 16
"""OpenAI's default for `/v1/completions`."""


async def at_once() -> None:
    """No turn is waited for."""


@dataclass(frozen=True, slots=True)
class JobInput:
    """One request as it came, and the engine it came to."""

    body: bytes
    caller: Caller
    started: Started
    turn: Callable[[], Awaitable[None]] = at_once
    """Returns in a turn of the loop that has no other long work."""


@dataclass(frozen=True, slots=True)
class GenerationJob:
    """One request, understood: `each` prompt has so many of the `choices` in turn, of which the `best` are told."""

    choices: tuple[Choice, ...]
    writer: AnswerWriter
    stream: bool
    options: StreamOptions
    each: int
    best: int

    @property
    def long(self) -> bool:
        """Scores of long prompts are to be written down."""
        return sum(len(choice.submit.prompt) for choice in self.choices if choice.submit.prompt_logprobs >= 0) > INLINE

    def usage(self) -> Usage:
        """Token counts so far: each prompt once, as its first choice found it cached."""
        firsts = [(len(choice.submit.prompt), choice.output.cached) for choice in self.choices[:: self.each]]
        cached = sum(min(length, found) for length, found in firsts)
        return Usage.of(sum(length for length, _ in firsts), cached, [choice.output for choice in self.choices])

    def whole(self, pieces: Sequence[Sequence[Piece]]) -> bytes:
        """The body of an answer that is not streamed, from all pieces of each choice."""
        starts = range(0, len(self.choices), self.each)
        return self.writer.body(
            [choice for start in starts for choice in self._choices_from(start, pieces)], self.usage()
        )

    def _choices_from(self, start: int, pieces: Sequence[Sequence[Piece]]) -> list[object]:
        """The told choices of the prompt whose candidates begin at `start`."""
        end = start + self.each
        best = pieces[start:end] if self.best == self.each else best_candidates(pieces[start:end], self.best)
        return [choice.shape.whole(own) for choice, own in zip(self.choices[start:end], best, strict=False)]


@dataclass(frozen=True, slots=True)
class Prompt:
    """Tokens in, tokens out, and how the choice with a certain number is written, with what comes of the prompt."""

    ids: list[int]
    max_tokens: int
    shape: Callable[[int, Sequence[PromptLogprob]], ResponseShape]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What differs between the routes."""

    prompts: list[Prompt]
    logprobs: int
    kind: ObjectKind
    decode: Decode
    prompt_ids: list[int] | UnsetType = UNSET
    prompt_text: str | UnsetType = UNSET
    grammar: str = ""
    alternative: Callable[[str], str] | None = None
    reasoning: ReasoningMarkers | None = None
    include_reasoning: bool = True
    identity: str = ""
    own: list[WritingShape] = field(default_factory=list)
    """The shape that writes the answer, once it is made, if the route has such a one."""


async def completion_job(model: ServedModel, asked: JobInput) -> GenerationJob:
    """A job from the body of `/v1/completions`. Raises RequestError."""
    body, resume = split(asked.body, asked.caller.resume)
    request = parse(CompletionRequest, body)
    context = asked.started.max_model_len
    model.known(request.model)
    default = min(COMPLETION_TOKENS, asked.caller.max_tokens or COMPLETION_TOKENS)
    most = default if request.limit is None else request.limit
    how = Encoding(request.add_special_tokens, request.truncation(context, most), min(most, 1))
    all_ids = await ids_of(model.tokenizer, request.prompt, context, "prompt", how)
    logprobs = -1 if request.logprobs is None else request.logprobs

    def shape(index: int, scores: Sequence[PromptLogprob], ids: list[int], echo: str) -> ResponseShape:
        names, echoed = token_bytes_of(model, request), request.echo and logprobs >= 0
        texts = _token_texts(model, request, () if request.echo else ids) if logprobs >= 0 else None
        scored = PromptScores(ids, scores, logprobs, names) if echoed else None
        made: ResponseShape = CompletionShape(index, texts, echo, scored)
        if request.prompt_logprobs is not None:
            own = PromptScores(ids, scores, request.prompt_logprobs, names)
            made = WithPromptLogprobs(made, own)
        return WithTokenIds(made, ids) if request.return_token_ids else made

    prompts = [
        Prompt(
            ids,
            room(len(ids), request.limit, default, context, name),
            partial(shape, ids=ids, echo=_echo(model, given if how.truncation is None else ids, request.echo)),
        )
        for given, ids, name in zip(request.prompt, all_ids, names_of("prompt", len(all_ids)), strict=True)
    ]
    decode = model.tokenizer.decode if request.skip_special_tokens else model.tokenizer.decode_all
    return await job_of(model, request, asked, resume, Wanted(prompts, logprobs, TEXT, decode))


def token_bytes_of(model: ServedModel, request: GenerateRequest) -> TokenBytes:
    """What `logprobs` call a token."""
    return as_id if request.return_tokens_as_token_ids else model.tokenizer.token_bytes


def _token_texts(model: ServedModel, request: CompletionRequest, before: Sequence[int]) -> TokenTexts:
    """What the tokens of an answer behind `before` add to its text."""
    as_ids, special = request.return_tokens_as_token_ids, not request.skip_special_tokens
    return TokenTexts(model.tokenizer, before, special=special, as_ids=as_ids)


def _echo(model: ServedModel, given: Input, echo: bool) -> str:
    """What stands before each answer to this prompt."""
    if not echo:
        return ""
    return given if isinstance(given, str) else model.tokenizer.decode(given)


async def job_of(
    model: ServedModel, request: GenerateRequest, asked: JobInput, resume: Resume | None, wanted: Wanted
) -> GenerationJob:
    _check(model, request, wanted, resume)
    name = secrets.token_hex(12)
    wanted = replace(wanted, grammar=await _grammar(model, request, asked, wanted))
    submits = _submits(model, request, asked, name, wanted)
    choices = tuple(_choices(model, request, submits, asked.started, wanted))
    identity, created = wanted.identity or f"{wanted.kind.id_prefix}{name}", int(model.clock.utc().timestamp())
    if resume:
        each_token = request.return_token_ids or wanted.logprobs >= 0
        choices = await resumed(choices, resume, asked.started, model.tokenizer.size, each_token=each_token)
        identity, created = resume.id, resume.created
    writer: AnswerWriter = (
        wanted.own[0]
        if wanted.own
        else ChunkWriter(
            identity,
            created,
            request.model,
            wanted.kind,
            model.fingerprint or UNSET,
            wanted.prompt_ids,
            wanted.prompt_text,
            _chat_scores(model, request, choices[0]) if wanted.kind is CHAT else None,
        )
    )
    each = len(choices) // len(wanted.prompts)
    return GenerationJob(choices, writer, request.stream, request.stream_options, each, request.n)


async def _grammar(model: ServedModel, request: GenerateRequest, asked: JobInput, wanted: Wanted) -> str:
    return await followed(request, asked.started, model.check, asked.caller.tenant, wanted.alternative)


def _chat_scores(model: ServedModel, request: GenerateRequest, first: Choice) -> Callable[[], PromptLogprobs] | None:
    """What a chat's whole answer tells of its prompt, beside the choices."""
    if request.prompt_logprobs is None:
        return None
    scores, names = first.output.prompt_logprobs, token_bytes_of(model, request)
    return PromptScores(first.submit.prompt, scores, request.prompt_logprobs, names).by_id


def _check(model: ServedModel, request: GenerateRequest, wanted: Wanted, resume: Resume | None) -> None:
    least = min(prompt.max_tokens for prompt in wanted.prompts)
    field, candidates = request.scored
    if field:
        times = request.candidates if request.stream else 1  # each stream begins with its own
        check_scores(field, candidates, times * sum(len(prompt.ids) for prompt in wanted.prompts))
    if request.min_tokens > least:
        raise invalid(f"`min_tokens` is above the {least} tokens that may be generated.", "min_tokens")
    if not all(0 <= token < model.tokenizer.size for token in request.stop_token_ids):
        words = f"`stop_token_ids` names a token id that is not in 0 to {model.tokenizer.size - 1}."
        raise invalid(words, "stop_token_ids")
    if model.filters and wanted.logprobs >= 0:
        raise invalid("`logprobs` would tell what the filters of this service take out; leave it out.", "logprobs")
    if resume and resume.vocabulary not in ("", model.tokenizer.vocabulary):
        raise invalid("The stream's ids are of another vocabulary than this worker's.", RESUME)
    if resume and not request.stream:
        raise invalid("Only a stream can be resumed; send the request again.", "stream")


def _submits(
    model: ServedModel, request: GenerateRequest, asked: JobInput, name: str, wanted: Wanted
) -> Iterator[tuple[Prompt, Submit]]:
    """A sequence for each prompt; all have the same seed, so each is answered as if it were asked alone."""
    seed = _seed(model, request, asked.caller)
    how = sampling(request, asked.started, seed, _logprobs(request, wanted.logprobs), model.tokenizer)
    how = structs.replace(how, grammar=wanted.grammar)
    for place, prompt in enumerate(wanted.prompts):
        own = name if len(wanted.prompts) == 1 else f"{name}-{place}"
        submit = _submit(request, asked.caller, own, prompt, how)
        keys = asked.caller.prefix if len(wanted.prompts) == 1 else None
        keys_of_prompt = keys.tokens(len(prompt.ids)) if keys else []
        unsalted = 0 if request.cache_salt else model.warm.unsalted(prompt.ids)
        yield prompt, structs.replace(submit, prefix_keys=keys_of_prompt, unsalted=unsalted)


def _submit(request: GenerateRequest, caller: Caller, name: str, prompt: Prompt, how: Sampling) -> Submit:
    return Submit(
        id=name,
        prompt=prompt.ids,
        max_tokens=prompt.max_tokens,
        sampling=how,
        request_class=caller.request_class,
        min_tokens=request.min_tokens,
        stop_ids=request.stop_token_ids,
        ignore_eos=request.ignore_eos,
        salt=request.salt(caller.tenant),
        deadline_s=caller.deadline_s,
        tpot_s=caller.tpot_s,
        prompt_logprobs=request.scored[1],
    )


def _logprobs(request: GenerateRequest, asked: int) -> int:
    """What is asked for; the best of several need their tokens' own."""
    drawn = not request.use_beam_search and request.candidates > request.n
    return max(asked, 0) if drawn else asked


def _sequences(submit: Submit, request: GenerateRequest, started: Started) -> list[Submit]:
    """One for each choice: the same sequence, or the answers of one search."""
    if request.use_beam_search:
        return searched(submit, request, started)
    if request.candidates == 1:
        return [submit]
    ids = [f"{submit.id}-{choice}" for choice in range(request.candidates)]
    scores = submit.prompt_logprobs
    if scores >= 0 and request.stream:  # each stream begins with its own
        return [structs.replace(submit, id=one, choice=choice) for choice, one in enumerate(ids)]
    return [
        structs.replace(submit, id=one, choice=choice, group=submit.id, prompt_logprobs=-1 if choice else scores)
        for choice, one in enumerate(ids)
    ]


def _seed(model: ServedModel, request: GenerateRequest, caller: Caller) -> int:
    """The request's own, else the gateway's, else a drawn one."""
    named = [seed for seed in (request.seed, caller.seed) if seed is not None]
    return named[0] if named else model.new_seed()


def _choices(
    model: ServedModel,
    request: GenerateRequest,
    submits: Iterable[tuple[Prompt, Submit]],
    started: Started,
    wanted: Wanted,
) -> Iterator[Choice]:
    """The candidates of each prompt in turn, numbered prompt * n + choice as OpenAI does."""
    for place, (prompt, submit) in enumerate(submits):
        first: TextOutput | None = None
        for one in _sequences(submit, request, started):
            output = TextOutput(
                wanted.decode,
                before=submit.prompt,
                stops=request.stop,
                include_stop=request.include_stop_str_in_output,
                min_tokens=request.min_tokens,
                filters=model.filters() if model.filters else None,
                reasoning=wanted.reasoning,
                reasoning_filters=model.filters() if model.filters else None,
                include_reasoning=wanted.include_reasoning,
            )
            first = output if first is None or request.stream else first
            yield Choice(one, output, prompt.shape(place * request.n + one.choice, first.prompt_logprobs))
