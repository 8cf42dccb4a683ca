"""Estimates of a request's use, learned from earlier requests: the tokens of its prompt, and of its answer.

Prompts: estimated by tenant without a tokenizer, from the workers' counts. A prompt of `text` bytes has an expected
`extra + text / ratio` tokens, in addition to those that it lists itself. Prompts of LONG bytes and more teach the
ratio; shorter ones teach `extra`, which the chat template adds. Both averages decay. The ratio stays between MIN_ and
MAX_BYTES_PER_TOKEN: no tokenizer makes more tokens than bytes (emoji and base64 come close, CJK has 2 to 3, prose 4 to
5), and above 8 there are only runs of spaces and the like, which no tenant may teach.
For a tenant that is not known yet, the median of the known tenants' ratios counts, but never fewer tokens than
BYTES_PER_TOKEN gives: so no tenant lowers another one's estimates, and half of them are needed to raise those of
newcomers. TENANTS are remembered; the least recently seen is forgotten first.
Known hole: a tenant can teach its own ratio up to MAX_BYTES_PER_TOKEN and then send text of one byte a token.
Settlement charges the real count, and a monthly budget counts open requests at one token a byte (`usage/cost.py`).

Answers: a high quantile of the lengths so far is reserved, by tenant once enough answers are known. There is a
histogram with geometric bins and a decaying memory for the class and for each of its tenants. It is a quantile and not
the mean: a reservation that is too large comes back when the answer ends, one that is too small has already let work
through. Two rules keep a tenant's concurrent requests from passing its limit together. Until a tenant is known, at
least PRIOR_OUTPUT is reserved, however short others' answers are. And so it is while the tenant is `overexposed`: its
open requests may pass their reservations by more than a minute's limit. A tenant that teaches short answers and then
requests many long ones at once passes its limit per minute by that amount and the shortfall of its reservations, and
repays it before anything else is admitted. A monthly budget cannot be repaid, so `usage/cost.py` guards it more
closely. `least` is what each choice has at least (`min_tokens`; the full length with `ignore_eos`).
Bounded: `TENANTS` histograms of `BINS` numbers; the least recently seen is forgotten first.
"""

from collections.abc import Callable
from statistics import median
from typing import Final, TypeVar

from paceline_core.objects.resolved import ResolvedTenant
from paceline_core.registry.enums import RequestClass
from paceline_gateway.api.admission import AdmittedRequest
from paceline_gateway.queueing.queued_request import QueuedRequest
from paceline_gateway.quota.types import QuotaUsage
from paceline_gateway.request.body import MAX_INT64
from paceline_gateway.request.prompt_size import PromptSize
from paceline_gateway.routing.worker_pool import WorkerPool
from paceline_gateway.usage.cost import BudgetExposure

T = TypeVar("T")
TENANTS: Final = 512
BYTES_PER_TOKEN: Final = 4.0
MIN_BYTES_PER_TOKEN: Final = 1.0
MAX_BYTES_PER_TOKEN: Final = 8.0
LONG: Final = 256
EXTRA: Final = 1024.0
"""The most tokens that a template is assumed to add."""
MIN_WEIGHT: Final = 512.0
"""Tokens after which a tenant's own ratio is used."""
PROMPT_MEMORY: Final = 200_000.0
_SHORT_MEMORY: Final = 100.0
_STALE_PROMPTS: Final = 64


class _Average:
    """A weighted average that decays."""

    __slots__ = ("_memory", "total", "weight")

    def __init__(self, memory: float) -> None:
        self._memory = memory
        self.total = 0.0
        self.weight = 0.0

    def add(self, amount: float, weight: float) -> None:
        fade = min(self._memory / (self.weight + weight), 1.0)
        self.total, self.weight = (self.total + amount) * fade, (self.weight + weight) * fade


class _Tenant:
    __slots__ = ("extra", "ratio")

    def __init__(self) -> None:
        self.ratio = _Average(PROMPT_MEMORY)
        self.extra = _Average(_SHORT_MEMORY)

    @property
    def known(self) -> bool:
        return self.ratio.weight >= MIN_WEIGHT

    @property
    def bytes_per_token(self) -> float:
        return (
            min(max(self.ratio.total / self.ratio.weight, MIN_BYTES_PER_TOKEN), MAX_BYTES_PER_TOKEN)
            if self.ratio.weight
            else BYTES_PER_TOKEN
        )

    @property
    def added(self) -> float:
        return min(max(self.extra.total / self.extra.weight, 0.0), EXTRA) if self.extra.weight else 0.0


def _remembered(tenants: dict[str, T], tenant: str, new: Callable[[], T]) -> T:
    """A tenant's entry, now the most recently seen of TENANTS."""
    own = tenants.pop(tenant, None) or new()
    tenants[tenant] = own
    if len(tenants) > TENANTS:
        del tenants[next(iter(tenants))]
    return own


class PromptLengthEstimator:
    """Estimates the prompts of one service."""

    def __init__(self) -> None:
        self._tenants: dict[str, _Tenant] = {}
        self._median = BYTES_PER_TOKEN
        self._fresh = 0

    def __len__(self) -> int:
        return len(self._tenants)

    @property
    def bytes_per_token(self) -> float:
        """The median over the known tenants; up to as many prompts old as there are tenants, at most 64."""
        if self._fresh <= 0:
            known = [tenant.bytes_per_token for tenant in self._tenants.values() if tenant.known]
            self._median = median(known) if known else BYTES_PER_TOKEN
            self._fresh = min(len(self._tenants), _STALE_PROMPTS)
        return self._median

    def tokens(self, prompt: PromptSize, tenant: str = "") -> int:
        """Estimated tokens of this tenant's prompt; at least one."""
        own = self._tenants.get(tenant)
        ratio = own.bytes_per_token if own is not None and own.known else min(self.bytes_per_token, BYTES_PER_TOKEN)
        extra = 0.0 if own is None or not prompt.text else own.added * prompt.prompts
        return max(1, prompt.tokens + round(extra + prompt.text / ratio))

    def learn(self, prompt: PromptSize, tokens: int, tenant: str) -> None:
        """This tenant's prompt had `tokens` by the worker's count."""
        rest = tokens - prompt.tokens
        if not prompt.text or tokens <= 0 or prompt.truncated:
            return
        self._fresh -= 1
        own = _remembered(self._tenants, tenant, _Tenant)
        if prompt.text < LONG * prompt.prompts:
            own.extra.add(max(rest - prompt.text / own.bytes_per_token, 0.0) / prompt.prompts, 1.0)
        else:
            tokens_of_text = max(rest - own.added * prompt.prompts, prompt.text / MAX_BYTES_PER_TOKEN)
            own.ratio.add(prompt.text, tokens_of_text)


QUANTILE: Final = 0.9
PRIOR_OUTPUT: Final = 256
MIN_SAMPLES: Final = 20
OUTPUT_MEMORY: Final = 2000.0
BINS: Final = 80
_PER_DOUBLING: Final = 4
_STALE_OUTPUTS: Final = 16


class LengthHistogram:
    """Lengths of answers in tokens; gives their high quantile."""

    __slots__ = ("_bins", "_fresh", "_quantile", "count")

    def __init__(self) -> None:
        self.count = 0.0
        self._bins = [0.0] * BINS
        self._quantile = 0
        self._fresh = 0

    def learn(self, tokens: int) -> None:
        self._bins[_bin(tokens)] += 1.0
        self.count += 1.0
        self._fresh -= 1
        if self.count > OUTPUT_MEMORY:
            self._bins = [count / 2 for count in self._bins]
            self.count /= 2

    def quantile(self) -> int:
        """The upper edge of the quantile's bin; up to 16 answers old."""
        if self._fresh <= 0:
            self._fresh = min(_STALE_OUTPUTS, int(self.count) // 4)
            rest = self.count * QUANTILE
            for number, count in enumerate(self._bins):
                rest -= count
                if rest <= 1e-9:
                    self._quantile = _edge(number)
                    break
        return self._quantile


class OutputLengthEstimator:
    """Estimates the answers of one class of one service."""

    def __init__(self) -> None:
        self._all = LengthHistogram()
        self._tenants: dict[str, LengthHistogram] = {}

    def __len__(self) -> int:
        return len(self._tenants)

    def learn(self, tenant: str, tokens: int, choices: int) -> None:
        """An answer of `tokens` in `choices` ended well."""
        each = -(-tokens // max(choices, 1))
        _remembered(self._tenants, tenant, LengthHistogram).learn(each)
        self._all.learn(each)

    def expected(
        self, tenant: str, most: int | None, choices: int, *, least: int = 0, overexposed: bool = False
    ) -> int:
        """Output tokens to reserve for a request: at most what it allows, at least what it must have."""
        own = self._tenants.get(tenant)
        if own is not None and own.count >= MIN_SAMPLES:
            each = own.quantile()
        else:
            each = max(self._all.quantile(), PRIOR_OUTPUT) if self._all.count >= MIN_SAMPLES else PRIOR_OUTPUT
        each = max(each, least, PRIOR_OUTPUT if overexposed else 0)
        return (each if most is None else min(each, most)) * max(choices, 1)


def _bin(tokens: int) -> int:
    """0 to 7 have a bin each; from 8 on there are four bins for each doubling."""
    if tokens < 8:
        return max(tokens, 0)
    doubling = tokens.bit_length() - 1
    quarter = (tokens >> (doubling - 2)) & 3
    return min(8 + (doubling - 3) * _PER_DOUBLING + quarter, BINS - 1)


def _edge(number: int) -> int:
    """The largest length in a bin."""
    if number < 8:
        return number
    doubling, quarter = divmod(number - 8, _PER_DOUBLING)
    return ((4 + quarter + 1) << (doubling + 1)) - 1


class UsageEstimates:
    """The estimates for one service; `pool` holds its workers."""

    def __init__(self, pool: WorkerPool) -> None:
        self.prompts = PromptLengthEstimator()
        self.outputs = {name: OutputLengthEstimator() for name in RequestClass}
        self._pool = pool

    def prompt_tokens(self, prompt: PromptSize, tenant: str = "") -> int:
        """Expected prompt tokens, at most the model's context: a longer prompt is refused and must add no replica."""
        tokens = self.prompts.tokens(prompt, tenant)
        return min(tokens, self._pool.context * prompt.prompts) if self._pool.context else tokens

    def most_prompt_tokens(self, prompt: PromptSize) -> int:
        """The largest possible number of prompt tokens, apart from what a chat template adds."""
        tokens = MAX_INT64 if prompt.unbound else prompt.text + prompt.tokens  # a token is a byte of text or more
        return min(tokens, self._pool.context * prompt.prompts) if self._pool.context else tokens

    def expected_usage(  # noqa: PLR0913 - all inputs of a reservation
        self,
        queued: QueuedRequest,
        admission: AdmittedRequest,
        tenant: ResolvedTenant,
        exposure: BudgetExposure,
        gateways: int,
        *,
        writes: bool,
    ) -> tuple[QuotaUsage, QuotaUsage]:
        """The expected use of a request, and the most that it may use.

        `exposure`: what tenants' open requests here may use beyond their reservations.
        """
        if admission.counts:
            return QuotaUsage(1), QuotaUsage(1)
        prompt = queued.prompt_tokens
        inputs, outputs = tenant.input_tokens_per_minute, tenant.output_tokens_per_minute
        # for both limits: whether open requests may pass their reservations by more than a minute's limit
        if inputs is not None and exposure.of(tenant.name).input_tokens * gateways > inputs:
            prompt = max(prompt, self.prompt_tokens(admission.prompt))
        most = max(prompt, self.most_prompt_tokens(admission.prompt))
        if not writes:
            return QuotaUsage(1, prompt), QuotaUsage(1, most)
        output = self.outputs[queued.request_class].expected(
            tenant.name,
            admission.max_tokens,
            admission.choices,
            least=admission.min_tokens,
            overexposed=outputs is not None and exposure.of(tenant.name).output_tokens * gateways > outputs,
        )
        return QuotaUsage(1, prompt, output), QuotaUsage(1, most, admission.max_tokens * admission.choices)
