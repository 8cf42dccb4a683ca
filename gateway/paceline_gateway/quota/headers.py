"""`x-ratelimit-*` as OpenAI writes them: limit, remaining, and the time until all of it is there again.

Of input and output tokens the one is told that has the smaller part left; a limit that does not exist is not told.
"""

from collections.abc import Sequence

from paceline_gateway.quota.nouns import UNLIMITED, Vector


def ratelimit_fields(limits: Vector, left: Sequence[float]) -> bytes:
    """Complete header lines for these limits and what is left of them."""
    fields = b"" if limits[0] == UNLIMITED else _lines(b"requests", limits[0], left[0])
    tokens = [kind for kind in (1, 2) if limits[kind] != UNLIMITED]
    if tokens:
        tightest = min(tokens, key=lambda kind: left[kind] / limits[kind] if limits[kind] else 0.0)
        fields += _lines(b"tokens", limits[tightest], left[tightest])
    return fields


def duration(seconds: float) -> str:
    """`17ms`, `1.5s`, `6m0s`, `1h0m2s`."""
    thousandths = max(round(seconds * 1000), 0)
    if thousandths < 1000:
        return f"{thousandths}ms" if thousandths else "0s"
    minutes, rest = divmod(thousandths, 60_000)
    text = f"{rest / 1000:g}s"
    if minutes:
        hours, minutes = divmod(minutes, 60)
        text = f"{hours}h{minutes}m{text}" if hours else f"{minutes}m{text}"
    return text


def _lines(what: bytes, limit: float, left: float) -> bytes:
    reset = duration((limit - left) * 60.0 / limit if limit else 0.0).encode()
    return b"x-ratelimit-limit-%b: %d\r\nx-ratelimit-remaining-%b: %d\r\nx-ratelimit-reset-%b: %b\r\n" % (
        what, int(limit), what, max(int(left + 1e-6), 0), what, reset,
    )  # fmt: skip
