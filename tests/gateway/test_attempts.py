from hypothesis import given
from hypothesis import strategies as st

from paceline_gateway.request.attempts import WINDOW_S, RetryBudget


def test_a_quiet_service_may_retry_up_to_the_minimum() -> None:
    budget = RetryBudget(0.2, min_retries=3)
    assert [budget.take(0.0) for _ in range(5)] == [True, True, True, False, False]


def test_a_busy_service_may_retry_a_share_of_its_requests() -> None:
    budget = RetryBudget(0.2, min_retries=0)
    for _ in range(50):
        budget.request(1.0)
    assert sum(budget.take(1.5) for _ in range(50)) == 10


def test_the_window_moves_on() -> None:
    budget = RetryBudget(0.0, min_retries=1)
    assert budget.take(0.0)
    assert not budget.take(WINDOW_S - 0.5)
    assert budget.take(WINDOW_S + 0.5)


@given(st.lists(st.tuples(st.floats(0, 5), st.booleans()), max_size=200))
def test_no_window_ever_holds_more_retries_than_allowed(steps: list[tuple[float, bool]]) -> None:
    budget, now = RetryBudget(0.1, min_retries=5), 0.0
    requests: list[float] = []
    retries: list[float] = []
    for wait, is_request in steps:
        now += wait
        if is_request:
            budget.request(now)
            requests.append(now)
        elif budget.take(now):
            retries.append(now)
        window = int(now) - WINDOW_S
        allowed = max(5, 0.1 * sum(int(at) > window for at in requests))
        assert sum(int(at) > window for at in retries) <= max(allowed, 5 + 0.1 * len(requests))
