"""Divide whole replicas by shares: the one rule for canaries, used by operator and autoscaler alike."""

from collections.abc import Mapping


def split(total: int, shares: Mapping[str, float]) -> dict[str, int]:
    """Largest remainder: `split(5, {"stable": 90, "canary": 10})` -> stable 4, canary 1.

    The parts sum to `total`; a positive share gets at least one replica while there are enough for all of them;
    ties go to the larger share, then to the name that sorts first, so that two processes agree.
    """
    positive = {name: share for name, share in shares.items() if share > 0}
    if not positive or total <= 0:
        return dict.fromkeys(shares, 0)
    weight = sum(positive.values())
    floor = 1 if total >= len(positive) else 0
    exact = {name: total * share / weight for name, share in positive.items()}
    parts = {name: max(int(value), floor) for name, value in exact.items()}
    while sum(parts.values()) > total:
        parts[max((n for n in parts if parts[n] > floor), key=lambda n: (parts[n] - exact[n], n))] -= 1
    while sum(parts.values()) < total:
        parts[min(parts, key=lambda n: (parts[n] - exact[n], -positive[n], n))] += 1
    return {name: parts.get(name, 0) for name in shares}
