"""`x-ratelimit-*` as OpenAI writes them: limit, remaining, and the time until all of it is there again.

Of input and output tokens the one is told that has the smaller part left; a limit that does not exist is not told.
A limit of zero is never there again, so it has no time, as its refusal has no `retry-after`.
"""

from collections.abc import Sequence

from paceline_gateway.quota.nouns import UNLIMITED, Vector


def ratelimit_fields(limits: Vector, left: Sequence[float]) -> bytes:
    """Complete header lines for these limits and what is left of them."""
    fields = "" if limits[0] == UNLIMITED else _lines("requests", limits[0], left[0])
    tightest = 2 if _part(limits[2], left[2]) < _part(limits[1], left[1]) else 1
    if limits[tightest] != UNLIMITED:
        fields += _lines("tokens", limits[tightest], left[tightest])
    return fields.encode()


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


def _part(limit: float, left: float) -> float:
    """Of a limit, what is left; more than all where there is none."""
    if limit == UNLIMITED:
        return UNLIMITED
    return left / limit if limit else 0.0


def _lines(what: str, limit: float, left: float) -> str:
    reset = f"x-ratelimit-reset-{what}: {duration((limit - left) * 60.0 / limit)}\r\n" if limit else ""
    return (
        f"x-ratelimit-limit-{what}: {int(limit)}\r\nx-ratelimit-remaining-{what}: {max(int(left + 1e-6), 0)}\r\n{reset}"
    )
