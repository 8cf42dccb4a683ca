"""Pool and track of a worker from its pod's name: all that an EndpointSlice tells of a pod.

A Deployment's pods are called `<service>-<pool>[-canary]-<hash>-<5 characters>`, but what stands before the five is cut
to 58 characters (names.SimpleNameGenerator), into the hash or into `-canary`. A pool is never cut: service and pool
have at most 40 and 15 characters. The hash has no vowels, so `-ca` begins `-canary` and nothing else.
Hole: of the longest names (56 characters before the hash) one character is left; when it is a `c` the name does not
tell a canary from a hash that begins with `c`, and stable is answered.
"""

import re
from typing import Final

from paceline_core.objects.naming import CANARY, STABLE

_POOL: Final = re.compile(r"[a-z][a-z0-9]{0,14}(?=-)")
_RANDOM: Final = 5


def pool_and_track(service: str, pod: str) -> tuple[str, str]:
    """The pool and the track; an empty pool for a pod that no pool of this service made."""
    if not pod.startswith(f"{service}-"):
        return "", STABLE
    rest = pod[len(service) + 1 : -_RANDOM]
    found = _POOL.match(rest)
    if found is None:
        return "", STABLE
    return found[0], CANARY if rest[found.end() :].startswith("-ca") else STABLE
