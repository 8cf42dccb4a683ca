"""Attacks of all kinds, one after another, and what a neighbour feels of each.

`python -m benchmarks.attacks` takes about twelve minutes; `--quick` runs the first case of each kind, `--only` the
kinds whose names have one of these words in them, `--list` prints the list with counts and attacks nobody. Gateway and
workers share core 1, attacker and neighbour core 0. Whoever shares the machine makes gaps too: `waited_s` of a case
tells how long each process waited for its core. Where Linux shares cores between sessions first, priority counts within
a session alone; so a run above all others is `setsid sh -c 'echo -15 > /proc/self/autogroup; exec nice -n -10 python -m
benchmarks.attacks'`.
"""

import argparse
import os
import signal
import sys
from collections.abc import Sequence

from benchmarks import harness
from benchmarks.attacks import catalogue, rounds
from benchmarks.attacks.case import Kind
from benchmarks.attacks.stage import stage
from benchmarks.harness import Measured

from paceline_core.clock import SystemClock

AREA = "attacks"


def main() -> None:
    """List, or attack."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{AREA}")
    parser.add_argument("--quick", action="store_true", help="one case of each kind")
    parser.add_argument("--list", action="store_true", help="print all kinds and cases with their counts")
    parser.add_argument("--only", nargs="+", default=(), help="kinds whose names have one of these words in them")
    given = parser.parse_args()
    if given.list:
        sys.stdout.writelines(f"{line}\n" for line in catalogue.lines())
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # so that whatever was started is ended
    kinds = [kind for kind in catalogue.kinds() if _wanted(kind, given.only)]
    suffix = ".quick" if given.quick else ".part" if given.only else ""
    harness.report(AREA, lambda: measure(kinds, quick=given.quick), SystemClock(), suffix=suffix)


def measure(kinds: Sequence[Kind], *, quick: bool) -> Measured:
    """Rows, and every case."""
    load = [os.getloadavg()]
    with stage() as ready:
        rounds.warm(ready)
        found = [rounds.attacked(ready, kind, kind.cases[:1] if quick else kind.cases) for kind in kinds]
    load.append(os.getloadavg())
    kept = {"kinds": {one.kind.name: one.json() for one in found}, "restarts": ready.restarts}
    return rounds.rows(found), kept | {"load_averages": load}


def _wanted(kind: Kind, words: Sequence[str]) -> bool:
    return not words or any(word in kind.name for word in words)


if __name__ == "__main__":
    main()
