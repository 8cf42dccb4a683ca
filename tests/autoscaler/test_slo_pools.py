"""The policy `slo` with several pools: the cheapest counts that suffice, found without trying all of them."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st
from tests.autoscaler.factories import STEP, decide, demand, goal, load, observation, pool, seasoned, view

from paceline_autoscaler.model.estimate import USABLE, PoolEstimate, RoleEstimate
from paceline_autoscaler.model.outlook import Outlook
from paceline_autoscaler.policies.slo import FluidModel
from paceline_autoscaler.types import PoolStatus

MOST_CHEAP, MOST_DEAR = 8, 12


def fluid(needed: float, speed: float, dollars: float, ordered: tuple[int, int], most: int = MOST_CHEAP) -> FluidModel:
    """A cheap pool of replicas of 1, and a dearer one of replicas that do `speed` times as much for `dollars`."""
    specs = pool(name="cheap", max=most, dollars_per_hour=1.0), pool(name="dear", dollars_per_hour=dollars)
    pools = tuple(
        PoolEstimate(spec, PoolStatus(spec.name, count), 1 / each, 20.0, (), 0, "")
        for spec, count, each in zip(specs, ordered, (1.0, speed), strict=True)
    )
    group = RoleEstimate("both", pools, True, 0.0, 0.0, Outlook(0.0, 0.0, 0.0), 0.0, 0.0, None)
    return FluidModel(group, 20.0, 35.0, 1.0, USABLE * needed, backlogged=False)


def dollars_of(counts: dict[str, int], dollars: float) -> float:
    return counts["cheap"] + dollars * counts["dear"]


@given(
    needed=st.floats(0.1, 12.0),
    dollars=st.floats(1.2, 3.0),
    worth=st.floats(0.6, 1.0),
    ordered=st.tuples(st.integers(0, 2), st.integers(0, 1)),
)
def test_no_counts_that_suffice_cost_a_twentieth_less(
    needed: float, dollars: float, worth: float, ordered: tuple[int, int]
) -> None:
    model = fluid(needed, worth * dollars, dollars, ordered)
    found = model.least()
    assert model.fits(found)
    choices = product(range(ordered[0], MOST_CHEAP + 1), range(ordered[1], MOST_DEAR + 1))
    suffice = [counts for counts in ({"cheap": c, "dear": d} for c, d in choices) if model.fits(counts)]
    assert dollars_of(found, dollars) <= 1.05 * min(dollars_of(counts, dollars) for counts in suffice) + 1e-9


def test_one_of_a_dearer_pool_takes_the_place_of_two_cheap_ones() -> None:
    """Three and a fast one would do as well."""
    assert fluid(3.2, 1.7, 1.9, (1, 0), most=3).least() == {"cheap": 2, "dear": 1}


def test_at_the_same_speed_cheap_replicas_are_ordered_first() -> None:
    assert fluid(3.2, 1.0, 2.0, (1, 0), most=3).least() == {"cheap": 3, "dear": 1}


def test_a_cheap_replica_leaves_where_a_dear_one_cannot() -> None:
    fast = STEP.model_copy(update={"prefill": STEP.prefill / 1.7})
    specs = pool(name="cheap", max=3, dollars_per_hour=1.0), pool(name="dear", dollars_per_hour=1.9)
    views = view(name="cheap", ready=3), view(name="dear", ready=1, loads=(load("ready-0", step_time=fast),))
    seen = observation(goal=goal(pools=specs), demand=demand(3.0), pools=views)
    decision, _ = decide(seen, seasoned(seen))
    assert {each.name: each.replicas for each in decision.pools} == {"cheap": 2, "dear": 1}
