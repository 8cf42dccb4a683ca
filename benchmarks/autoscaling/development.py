"""Windows for work on our policy: what it has learned when they begin, and the requests that follow.

None of them is scored by the comparison, and no cell is learned on the window that it is tried on.

    cell                 learned on              tried on
    conv, code, codeC    first quarter hour      second quarter hour, each repeated to half an hour
    mooncake             first quarter hour      second
    gamma                seed 3                  seed 1
    r1                   01:00-04:00             08:00-11:00
    az-code, az-conv     day 1                   day 2
    m-large              day 3                   day 4
"""

from dataclasses import dataclass
from functools import lru_cache

from benchmarks.autoscaling.cells import CROWD_S, HALF_S, Window, azure, gamma, m_large, part, r1
from benchmarks.autoscaling.fluid import fluid_plan, requests_of
from benchmarks.autoscaling.learned import Learned
from benchmarks.simulator.cells import LEAD_S, TARGET

from paceline_autoscaler.policies.fluid import run
from paceline_autoscaler.policies.replica_policy import ProductionPolicy, having_started


@dataclass(frozen=True, slots=True)
class Development:
    """Our policy learns on one window, and is tried on the other."""

    learned: Window
    tried: Window


def developments() -> dict[str, Development]:
    return {
        "conv": _quarters("conv", "conv", 6),
        "code": _quarters("code", "code", 10),
        "codeC": _quarters("codeC", "code", 6, CROWD_S),
        "mooncake": _quarters("mooncake", "mooncake", 2),
        "gamma": Development(gamma("seed 3", 300), gamma("seed 1", 100)),
        "r1": Development(r1("01-04 h", 1.0), r1("08-11 h", 8.0)),
        "az-code": Development(azure("code", 1), azure("code", 2)),
        "az-conv": Development(azure("conv", 1), azure("conv", 2)),
        "m-large": Development(m_large("day 3", 2), m_large("day 4", 3)),
    }


def _quarters(name: str, log: str, times: int, crowd_s: float | None = None) -> Development:
    quarter_s = HALF_S / 2
    first, second = (
        part(name, log, times, f"quarter hour {place + 1}", place * quarter_s, quarter_s, crowd_s) for place in range(2)
    )
    return Development(first, second)


@lru_cache(maxsize=2)
def learned_in_fluid(window: Window, seed: int) -> Learned:
    """What our policy has learned by the end of a window in the fluid model."""
    policy = ProductionPolicy(state=having_started({TARGET.pool: LEAD_S}))
    run(fluid_plan(window, requests_of(window, seed)), policy)
    return Learned.of(policy)
