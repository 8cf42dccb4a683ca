"""How many tokens a prompt will be, without a tokenizer: learned by tenant from what workers count.

A prompt of `text` bytes is expected to have `extra + text / ratio` tokens, beside those that it lists itself. Prompts
of LONG bytes and more teach the ratio; shorter ones teach `extra`, what the chat template adds by itself. Both averages
fade. The ratio is kept between LEAST and MOST bytes a token: no tokenizer makes more tokens than bytes (an emoji or
base64 comes near it, CJK has 2 to 3, prose 4 to 5), and beyond 8 there are only runs of spaces and the like, which
nobody shall be able to teach.

A tenant that is not known yet is estimated by the median of the known tenants' ratios, but never to less than PRIOR
says: so no tenant lowers another one's estimates, and it takes half of them to raise those of newcomers. TENANTS are
remembered; the one that was seen least lately is forgotten first.
Known hole: a tenant can teach its own ratio up to MOST and then send text of a byte a token. Settlement charges the
real count, and a month's budget counts what is open at one token a byte (`usage/exposure.py`).
"""

from statistics import median
from typing import Final

from paceline_gateway.requests.prompt import PromptSize

PRIOR: Final = 4.0
MIN_BYTES_PER_TOKEN: Final = 1.0
MAX_BYTES_PER_TOKEN: Final = 8.0
LONG: Final = 256
EXTRA: Final = 1024.0
"""The most that a template is believed to add."""
TENANTS: Final = 512
ENOUGH: Final = 512.0
"""Tokens after which a tenant's own ratio is believed."""
MEMORY: Final = 200_000.0
_SHORT_MEMORY: Final = 100.0
_STALE: Final = 64


class _Average:
    """A sum over a weight, which fades."""

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
        self.ratio = _Average(MEMORY)
        self.extra = _Average(_SHORT_MEMORY)

    @property
    def known(self) -> bool:
        return self.ratio.weight >= ENOUGH

    @property
    def bytes_per_token(self) -> float:
        return (
            min(max(self.ratio.total / self.ratio.weight, MIN_BYTES_PER_TOKEN), MAX_BYTES_PER_TOKEN)
            if self.ratio.weight
            else PRIOR
        )

    @property
    def added(self) -> float:
        return min(max(self.extra.total / self.extra.weight, 0.0), EXTRA) if self.extra.weight else 0.0


class PromptEstimate:
    """Of one service."""

    def __init__(self) -> None:
        self._tenants: dict[str, _Tenant] = {}
        self._median = PRIOR
        self._fresh = 0

    def __len__(self) -> int:
        return len(self._tenants)

    @property
    def bytes_per_token(self) -> float:
        """The median of the tenants that are known; up to so many prompts old as there are tenants, at most 64."""
        if self._fresh <= 0:
            known = [tenant.bytes_per_token for tenant in self._tenants.values() if tenant.known]
            self._median = median(known) if known else PRIOR
            self._fresh = min(len(self._tenants), _STALE)
        return self._median

    def tokens(self, prompt: PromptSize, tenant: str = "") -> int:
        """Estimated tokens of this tenant's prompt; at least one."""
        own = self._tenants.get(tenant)
        ratio = own.bytes_per_token if own is not None and own.known else min(self.bytes_per_token, PRIOR)
        extra = 0.0 if own is None or not prompt.text else own.added * prompt.prompts
        return max(1, prompt.tokens + round(extra + prompt.text / ratio))

    def learn(self, prompt: PromptSize, tokens: int, tenant: str) -> None:
        """This tenant's prompt turned out to have so many tokens."""
        rest = tokens - prompt.tokens
        if not prompt.text or tokens <= 0 or prompt.cut:
            return
        self._fresh -= 1
        own = self._tenants.pop(tenant, None) or _Tenant()
        self._tenants[tenant] = own
        if len(self._tenants) > TENANTS:
            del self._tenants[next(iter(self._tenants))]
        if prompt.text < LONG * prompt.prompts:
            own.extra.add(max(rest - prompt.text / own.bytes_per_token, 0.0) / prompt.prompts, 1.0)
        else:
            tokens_of_text = max(rest - own.added * prompt.prompts, prompt.text / MAX_BYTES_PER_TOKEN)
            own.ratio.add(prompt.text, tokens_of_text)
