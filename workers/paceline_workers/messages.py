"""The messages between the API process and the engine process: tagged msgpack structs, never pickle.

The API process owns text (templates, tokenizer, stop strings); the engine owns tokens. A frame is a 4-byte big-endian
length and one message of at most FRAME_LIMIT bytes, so that a faulty peer cannot make the other allocate without bound.
"""

from typing import Literal

import msgspec

from paceline_core.registry.enums import RequestClass

FRAME_LIMIT = 16 << 20


class Sampling(msgspec.Struct, frozen=True, tag="sampling"):
    """The sampling parameters. Temperature 0 is greedy; noise depends only on (seed, choice, position).

    `repetition` divides or multiplies over prompt and output (1 is none); the other penalties count only output.
    `bias` is added to logits by token id. `grammar`: see `engine.sampling.grammar`; "" is none.
    `allowed`: the only tokens that may be sampled, [] for all. `bad_words`: token sequences that the output must not
    contain: the last token is excluded where it would complete one.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    logprobs: int = -1
    min_p: float = 0.0
    repetition: float = 1.0
    presence: float = 0.0
    frequency: float = 0.0
    bias: dict[int, float] = {}
    grammar: str = ""
    allowed: list[int] = []
    bad_words: list[list[int]] = []


class Submit(msgspec.Struct, frozen=True, tag="submit"):
    """API -> engine: one sequence. `id` is unique for the engine's life; `deadline_s` counts from now, 0 is none.

    `tpot_s`: the TPOT promised to its stream; 0 selects the engine's configuration.
    `prefix_keys`: a gateway's prefix keys of the prompt, each with the number of tokens that it covers.
    `produced`: output ids from before a resumption; positions, limits and noise count them as if made here.
    `group` is the same for all choices of one prompt, "" if there is one choice.
    `embed`: the answer is the vector of the prompt (`Tokens.vector`), without tokens.
    `beams`: the width of a beam search; 0 is none. The best beams are sent whole at its end, each under its own id of
    `answers`, the first of which is `id` ([]: only the best).
    `unsalted`: this many tokens at the start of the prompt are public; `salt` separates only what follows them.
    `prompt_logprobs`: the number of candidates to report for each prompt token (`Tokens.prompt_logprobs`), for which
    the whole prompt is computed; -1: none. `max_tokens` 0: the sequence ends with its prompt.
    """

    id: str
    prompt: list[int]
    max_tokens: int
    sampling: Sampling
    request_class: RequestClass = RequestClass.INTERACTIVE
    min_tokens: int = 0
    stop_ids: list[int] = []
    ignore_eos: bool = False
    salt: str = ""
    choice: int = 0
    deadline_s: float = 0.0
    produced: list[int] = []
    group: str = ""
    embed: bool = False
    beams: int = 0
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False
    answers: list[str] = []
    tpot_s: float = 0.0
    prefix_keys: list[tuple[str, int]] = []
    unsalted: int = 0
    prompt_logprobs: int = -1


PromptLogprob = tuple[float, int, list[tuple[int, float]]]
"""For a prompt token: its log-probability, its rank (1 is the likeliest token), and the likeliest candidates."""


class Abort(msgspec.Struct, frozen=True, tag="abort"):
    """API -> engine: this sequence has no reader any more; free what it holds."""

    id: str


class Shutdown(msgspec.Struct, frozen=True, tag="shutdown"):
    """API -> engine: end now; running sequences are lost."""


class Timing(msgspec.Struct, frozen=True, tag="timing"):
    """Seconds of one sequence's phases inside the engine; only first waits, not waits after preemption."""

    queue: float
    batch_wait: float
    prefill: float
    decode: float


class Tokens(msgspec.Struct, frozen=True, tag="tokens", gc=False):
    """Engine -> API: new tokens of one sequence, from `position` of its output; `finish` is set on the last frame.

    finish: "" while running, else stop | length | abort (no token by its deadline) | refused (it can never run here) |
    queue_full (too many wait) | error; `error` then says why, in words for the client.
    With `stop`, the last id is the stop or EOS token itself.
    `cached`: how many prompt tokens came from the prefix cache. `logprobs`: per token (chosen, [(id, logprob)]).
    `vector`: with `Submit.embed`, float32 little-endian of length 1, in the only frame of the sequence (stop).
    `prompt_logprobs`: for the prompt's second and later tokens, in order, in separate frames before the first output
    token.
    """

    id: str
    position: int
    ids: list[int]
    finish: str = ""
    error: str = ""
    cached: int = 0
    logprobs: list[tuple[float, list[tuple[int, float]]]] = []
    timing: Timing | None = None
    vector: bytes = b""
    prompt_logprobs: list[PromptLogprob] = []


class Started(msgspec.Struct, frozen=True, tag="started"):
    """Engine -> API: the model is loaded and warm. A page has `page_tokens` tokens; EOS ids end a sequence.

    `defaults`: sampling parameters that the model's authors advise, for fields that a request omits: temperature,
    top_p, top_k, min_p, repetition_penalty; each may be absent. `grammars`: the engine supports structured output.
    `embedding`: the dimension of an embedding, 0 if the backend makes none.
    """

    pages: int
    page_tokens: int
    page_bytes: int
    max_model_len: int
    slots: int
    eos_ids: list[int]
    emulated: bool
    stages: dict[str, float]
    defaults: dict[str, float] = {}
    grammars: bool = True
    embedding: int = 0


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """Engine -> API: it cannot serve; `message` gives the reason and the fix, `field` the wrong setting."""

    message: str
    field: str = ""


class StepStats(msgspec.Struct, frozen=True, tag="step"):
    """One executed step: its contents, its time, and how late an emulated step ended (all in seconds).

    `kv_tokens` are those that decodes read; `context` is the mean number of tokens that a prefill token attends to.
    """

    seconds: float
    prefill_tokens: int
    decode_tokens: int
    sequences: int
    kv_tokens: int
    lateness: float = 0.0
    window: float = 0.0
    context: float = 0.0


class Heartbeat(msgspec.Struct, frozen=True, tag="heartbeat"):
    """Engine -> API: alive, at most every 0.25 s; with the numbers for metrics and the load report.

    free + cached + held = all pages. `host_pages` are in host memory; `pages_out` and `pages_in` count transfers there
    and back; `evicted_idle_s` sums how long evicted pages had been unused. The same counts for the disk tier are of
    transfers between host memory and disk. `slack_tokens` would fit into held pages; `loading` requests wait for pages
    from disk before they are queued; `shed_by` counts by reason: queue_full, backlog, deadline.
    `debt_pages`: pages that the running sequences are predicted to need beyond all pages; `remaining_tokens`: output
    tokens that they are still expected to produce.
    `prefix_added` and `prefix_evicted`: prefix keys whose pages became cached or were evicted since the last heartbeat.
    `step_time`: base, prefill, sequence, kv, context, observations of `StepTime`.
    """

    steps: int
    running: int
    waiting: dict[RequestClass, int]
    queued_tokens: dict[RequestClass, int]
    oldest_wait: float
    pages_free: int
    pages_cached: int
    preemptions: int
    evicted_pages: int
    lookup_tokens: int
    hit_tokens: int
    step_time: list[float]
    recent: list[StepStats] = []
    evicted_idle_s: float = 0.0
    host_pages: int = 0
    pages_out: int = 0
    pages_in: int = 0
    restored_tokens: int = 0
    recomputed_tokens: int = 0
    disk_pages: int = 0
    disk_pages_out: int = 0
    disk_pages_in: int = 0
    slack_tokens: int = 0
    loading: int = 0
    shed_by: dict[str, int] = {}
    debt_pages: int = 0
    prefix_added: list[str] = []
    prefix_evicted: list[str] = []
    remaining_tokens: int = 0


ToEngine = Submit | Abort | Shutdown
FromEngine = Tokens | Started | Failed | Heartbeat

to_engine = msgspec.msgpack.Decoder(ToEngine)
from_engine = msgspec.msgpack.Decoder(FromEngine)
_encoder = msgspec.msgpack.Encoder()


def frame(message: ToEngine | FromEngine) -> bytes:
    """A message with its length prefix. Raises ValueError if the message is over the limit."""
    body = _encoder.encode(message)
    if len(body) > FRAME_LIMIT:
        raise ValueError(f"a message of {len(body)} bytes is over the limit of {FRAME_LIMIT}")
    return len(body).to_bytes(4, "big") + body


_HEAD = 4


class FrameReader:
    """Turns bytes into whole frames as they arrive; the limit bounds memory. Pure."""

    def __init__(self, limit: int = FRAME_LIMIT) -> None:
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that `data` completes, in order. Raises ValueError if one is over the limit."""
        self._buffer += data
        buffer, start = self._buffer, 0
        frames: list[bytes] = []
        while len(buffer) >= start + _HEAD:
            size = int.from_bytes(buffer[start : start + _HEAD], "big")
            if size > self._limit:
                raise ValueError(f"a frame of {size} bytes is over the limit of {self._limit}")
            end = start + _HEAD + size
            if end > len(buffer):
                break
            frames.append(bytes(buffer[start + _HEAD : end]))
            start = end
        del buffer[:start]
        return frames
