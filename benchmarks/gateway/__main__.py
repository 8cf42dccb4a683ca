"""Our gateway against Envoy, smg, vllm-router, LiteLLM and a plain FastAPI proxy, and against its own bars.

`python -m benchmarks.gateway` takes about half an hour, ten minutes of it for `memory`; `--only streamed` and the like
run a part, `--quick` is for looking whether it runs. The first run makes the peers' virtual environments.
`--beside ../other` measures the gateway of another checkout in the same rounds: that is how a change is judged.
"""

import argparse
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks import harness
from benchmarks.gateway import leaving, memory, prompts, quota, streamed, waiting
from benchmarks.gateway.options import Options
from benchmarks.gateway.rivals import RIVALS
from benchmarks.gateway.stage import Stage, stage
from benchmarks.harness import Bar, Measured, Row

from paceline_core.clock import SystemClock

AREA = "gateway"
ROUNDS, QUICK_ROUNDS = 7, 2
Part = Callable[[Stage, Options], Measured]
PARTS: Mapping[str, Part] = {
    "streamed": streamed.streamed,
    "unstreamed": streamed.unstreamed,
    "waiting": waiting.waiting,
    "prompts": prompts.prompts,
    "quota": quota.quota,
    "leaving": leaving.leaving,
    "memory": memory.memory,
}


def main() -> None:
    """Run what was asked for, one part after another on one stage."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # so that whatever was started is ended
    harness.report(AREA, lambda: measure(options), SystemClock(), suffix=_suffix(options))


def measure(options: Options) -> Measured:
    """Rows and details of the parts. A part that fails is a row that fails; the others go on."""
    rows, details = list[Row](), dict[str, object]()
    with stage(options.peers, options.trees) as ready:
        for part in options.only or PARTS:
            try:
                found, details[part] = PARTS[part](ready, options)
            except Exception as error:  # noqa: BLE001 - whatever it was, half an hour of other rows must not be lost
                traceback.print_exc()
                found, details[part] = [_missing(part)], repr(error)
            sys.stderr.writelines(f"{part}: {row.name}: {row.value:.4g} {row.unit}\n" for row in found)
            rows += found
        details["failed"] = ready.failed
        details["peers"] = {name: RIVALS[name].environment.packages for name in options.peers}
        return [*rows, *map(_missing, ready.failed)], details


def _missing(name: str) -> Row:
    return Row(f"{name} could not be measured", 1, "", bar=Bar(0))


def _options() -> Options:
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{AREA}")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions and shorter runs")
    parser.add_argument("--rounds", type=int, help=f"of each comparison; default {ROUNDS}, quick {QUICK_ROUNDS}")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=(), help="these parts")
    parser.add_argument("--peers", nargs="*", choices=RIVALS, default=tuple(RIVALS), help="these peers; default all")
    parser.add_argument("--beside", nargs="+", type=Path, default=(), help="checkouts whose gateway takes part too")
    given = parser.parse_args()
    rounds = given.rounds or (QUICK_ROUNDS if given.quick else ROUNDS)
    trees = tuple(tree.resolve() for tree in given.beside)
    return Options(given.quick, rounds, tuple(given.only), tuple(given.peers), trees)


def _suffix(options: Options) -> str:
    """A run that is not whole never replaces a whole one."""
    whole = not options.only and set(options.peers) == set(RIVALS) and not options.trees
    return ".quick" if options.quick else "" if whole else ".part"


if __name__ == "__main__":
    main()
