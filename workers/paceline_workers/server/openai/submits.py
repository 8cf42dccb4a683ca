"""Turns a request and its prompts into a job: the sampling parameters, and a sequence for each choice.

A field that the request omits takes the value that the model's authors advise. With `use_beam_search`, one search of
the engine makes all answers of a prompt, and the sampling parameters have no effect.
"""

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from msgspec import UNSET, UnsetType, structs

from paceline_core.wire import RESUME, Resume
from paceline_workers.messages import PromptLogprob, Sampling, Started, Submit
from paceline_workers.server.openai.chat_responses import CHAT
from paceline_workers.server.openai.jobs import INLINE, Choice, GenerationJob, JobInput
from paceline_workers.server.openai.prompt_logprobs import PromptScores
from paceline_workers.server.openai.prompt_logprobs import check as check_scores
from paceline_workers.server.openai.requests import GenerateRequest
from paceline_workers.server.openai.response_writer import (
    AnswerWriter,
    ChunkWriter,
    ObjectKind,
    ResponseShape,
    TokenBytes,
    WritingShape,
)
from paceline_workers.server.openai.resume import resumed
from paceline_workers.server.openai.served_model import ServedModel
from paceline_workers.server.openai.token_ids import as_id
from paceline_workers.server.openai.validation import invalid
from paceline_workers.server.text.output import Decode, TextOutput
from paceline_workers.server.text.reasoning import ReasoningMarkers
from paceline_workers.server.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt's ids, the most tokens to generate, and how to make a choice's shape from its number and the scores."""

    ids: list[int]
    max_tokens: int
    shape: Callable[[int, Sequence[PromptLogprob]], ResponseShape]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What differs between routes. `scored`: the field that requests log-probabilities of the prompt, and how many.

    `calls`: the grammar of mandatory calls, in place of an answer's. `alternative` extends an answer's grammar to the
    whole text. `own`: the shape that writes the answer, once it is made, if the route has one.
    """

    prompts: list[Prompt]
    logprobs: int
    scored: tuple[str, int | None]
    kind: ObjectKind
    decode: Decode
    prompt_ids: list[int] | UnsetType = UNSET
    prompt_text: str | UnsetType = UNSET
    calls: str = ""
    alternative: Callable[[str], str] | None = None
    reasoning: ReasoningMarkers | None = None
    include_reasoning: bool = True
    identity: str = ""
    own: list[WritingShape] = field(default_factory=list)


def token_bytes_of(model: ServedModel, request: GenerateRequest) -> TokenBytes:
    """The names of tokens in `logprobs`."""
    return as_id if request.return_tokens_as_token_ids else model.tokenizer.token_bytes


async def job_of(
    model: ServedModel, request: GenerateRequest, asked: JobInput, resume: Resume | None, wanted: Wanted
) -> GenerationJob:
    """The job that answers the request. Raises RequestError."""
    _check(model, request, wanted, resume)
    name, grammar = secrets.token_hex(12), await _grammar(model, request, asked, wanted)
    how = _sampling(model, request, asked, wanted.logprobs, grammar)
    choices = tuple(_choices(model, request, asked, how, wanted, name=name))
    identity, created = wanted.identity or f"{wanted.kind.id_prefix}{name}", int(model.clock.utc().timestamp())
    if resume:
        each_token = request.return_token_ids or wanted.logprobs >= 0
        choices = await resumed(choices, resume, asked.started, model.tokenizer.size, each_token=each_token)
        identity, created = resume.id, resume.created
    prompt_logprobs = None
    if wanted.kind is CHAT and request.prompt_logprobs is not None:
        first, names = choices[0], token_bytes_of(model, request)
        scores = PromptScores(first.submit.prompt, first.output.prompt_logprobs, request.prompt_logprobs, names)
        prompt_logprobs = scores.by_id
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
            prompt_logprobs,
        )
    )
    each = len(choices) // len(wanted.prompts)
    scored = sum(len(choice.submit.prompt) for choice in choices if choice.submit.prompt_logprobs >= 0)
    return GenerationJob(choices, writer, request.stream, request.stream_options, each, request.n, long=scored > INLINE)


def _check(model: ServedModel, request: GenerateRequest, wanted: Wanted, resume: Resume | None) -> None:
    least, size = min(prompt.max_tokens for prompt in wanted.prompts), model.tokenizer.size
    field, candidates = wanted.scored
    if candidates is not None:
        times = request.candidates if request.stream else 1  # each stream begins with its own scores
        check_scores(field, candidates, times * sum(len(prompt.ids) for prompt in wanted.prompts))
    if request.min_tokens > least:
        raise invalid(f"`min_tokens` is above the {least} tokens that may be generated.", "min_tokens")
    if not all(0 <= token < size for token in request.stop_token_ids):
        raise invalid(f"`stop_token_ids` names a token id that is not in 0 to {size - 1}.", "stop_token_ids")
    if model.filters and wanted.logprobs >= 0:
        raise invalid("`logprobs` would tell what the filters of this service take out; leave it out.", "logprobs")
    if resume and resume.vocabulary not in ("", model.tokenizer.vocabulary):
        raise invalid("The stream's ids are of another vocabulary than this worker's.", RESUME)
    if resume and not request.stream:
        raise invalid("Only a stream can be resumed; send the request again.", "stream")


async def _grammar(model: ServedModel, request: GenerateRequest, asked: JobInput, wanted: Wanted) -> str:
    """The grammar that the text must follow, "" for none. Raises RequestError."""
    text, field = (wanted.calls, "tools") if wanted.calls else request.requested
    if not text:
        return ""
    if not asked.started.grammars:
        raise invalid(f"This worker cannot follow a grammar, which `{field}` needs; leave it out.", field)
    try:
        text = wanted.alternative(text) if wanted.alternative else text
    except ValueError as error:
        raise invalid(f"`{field}` cannot be followed: {error}.", field) from None
    if reason := await model.check(text, asked.caller.tenant):
        raise invalid(f"`{field}` cannot be followed: {reason}.", field)
    return text


def _choices(  # noqa: PLR0913 - the parts of a sequence
    model: ServedModel, request: GenerateRequest, asked: JobInput, how: Sampling, wanted: Wanted, *, name: str
) -> Iterator[Choice]:
    """The candidates of each prompt in turn, numbered prompt * n + choice as OpenAI does.

    All have the same seed, so each prompt gets the answer that it would get in a request of its own.
    """
    caller, alone, (_, scored) = asked.caller, len(wanted.prompts) == 1, wanted.scored
    for place, prompt in enumerate(wanted.prompts):
        submit = Submit(
            id=name if alone else f"{name}-{place}",
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
            prefix_keys=caller.prefix.tokens(len(prompt.ids)) if caller.prefix and alone else [],
            unsalted=0 if request.cache_salt else model.warm.unsalted(prompt.ids),
            prompt_logprobs=-1 if scored is None else scored,
        )
        several = request.use_beam_search or request.candidates > 1
        first: TextOutput | None = None
        for one in _sequences(submit, request, asked.started) if several else (submit,):
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


def _sampling(model: ServedModel, request: GenerateRequest, asked: JobInput, logprobs: int, grammar: str) -> Sampling:
    """The engine's sampling parameters; choosing the best of several candidates needs the logprobs of their tokens.

    Raises RequestError.
    """
    size, sent, advised = model.tokenizer.size, request.model_fields_set, asked.started.defaults
    if request.use_beam_search:
        return Sampling(temperature=0.0, logprobs=logprobs, grammar=grammar)
    if any(token >= size for token in request.logit_bias):
        raise invalid(f"`logit_bias` names a token id that is not in 0 to {size - 1}.", "logit_bias")
    if not all(0 <= token < size for token in request.allowed_token_ids or ()):
        raise invalid(f"`allowed_token_ids` names a token id that is not in 0 to {size - 1}.", "allowed_token_ids")

    def value(name: str) -> float:
        own: float = getattr(request, name)
        return own if name in sent else advised.get(name, own)

    named = [seed for seed in (request.seed, asked.caller.seed) if seed is not None]
    return Sampling(
        temperature=value("temperature"),
        top_p=value("top_p"),
        top_k=max(int(value("top_k")), 0),
        seed=named[0] if named else model.new_seed(),
        logprobs=max(logprobs, 0) if request.candidates > request.n else logprobs,
        min_p=value("min_p"),
        repetition=value("repetition_penalty"),
        presence=request.presence_penalty,
        frequency=request.frequency_penalty,
        bias=request.logit_bias,
        grammar=grammar,
        allowed=request.allowed_token_ids or [],
        bad_words=_bad_words(request.bad_words, model.tokenizer) if request.bad_words else [],
    )


def _bad_words(words: Sequence[str], tokenizer: Tokenizer) -> list[list[int]]:
    """Each word as tokens twice: at the start of a text, and after a space.

    vLLM omits the second if its number of tokens differs, so it lets many words pass. Raises RequestError.
    """
    found: list[list[int]] = []
    for word in words:
        begun = tokenizer.encode_now(word.lstrip(), special=False)
        if not begun:
            raise invalid(f"`bad_words` holds {word!r}, which has no tokens.", "bad_words")
        behind = tokenizer.encode_now(" " + word.lstrip(), special=False)
        found.append(begun)
        if behind[-len(begun) :] != begun:
            found.append(behind)
    return found


def _sequences(submit: Submit, request: GenerateRequest, started: Started) -> list[Submit]:
    """One sequence for each choice: copies of `submit`, or the answers of one search, of which the engine gets only the
    first. Raises RequestError.
    """
    if request.use_beam_search:
        if request.candidates > started.slots:
            field = "best_of" if request.best_of else "n"
            words = (
                f"`{field}` asks for {request.candidates} beams; this worker computes at most {started.slots} at once."
            )
            raise invalid(words, field)
        ids = [f"{submit.id}-{choice}" for choice in range(request.n)] if request.n > 1 else [submit.id]
        search = structs.replace(
            submit,
            beams=request.candidates,
            length_penalty=request.length_penalty,
            early_stopping=request.early_stopping,
            answers=ids,
        )
        return [structs.replace(search, id=answer, choice=choice) for choice, answer in enumerate(ids)]
    ids = [f"{submit.id}-{choice}" for choice in range(request.candidates)]
    scores = submit.prompt_logprobs
    if scores >= 0 and request.stream:  # each stream begins with its own scores
        return [structs.replace(submit, id=one, choice=choice) for choice, one in enumerate(ids)]
    return [
        structs.replace(submit, id=one, choice=choice, group=submit.id, prompt_logprobs=-1 if choice else scores)
        for choice, one in enumerate(ids)
    ]
