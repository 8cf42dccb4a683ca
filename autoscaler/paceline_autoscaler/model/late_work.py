"""How much work is late with a constant capacity, where the gateway lets what can still be in time go first. Pure.

What exceeds the work that capacity does within the slack is overdue: it is late, and has a ninth of the capacity and
what else is idle until it is done. Rates are those of thirds of bins, in replica-s/s, and so are capacities; work is in
replica-s.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import exp, fsum, sqrt

from paceline_autoscaler.model.work_history import BIN_S, RATES, WorkHistory

THIRD_S = BIN_S / 3
OVERDUE_SHARE = 1 / 9
"""While requests are overdue, every ninth that goes is one of them."""
BUSY_S = 300.0
_HALVINGS = 10
_EVEN = sqrt(1.5)
"""Three values 1 - a, 1 and 1 + a have the variance a²/1.5."""


def thirds(rate: float, turn: int, dispersion: float) -> tuple[float, float, float]:
    """The rates of a bin's thirds, which differ by the dispersion; the highest is another one from turn to turn."""
    share = min(_EVEN * sqrt(dispersion / rate), 1.0) if rate > 0 else 0.0
    first, second, third = (rate * (1 + share * ((turn + place) % 3 - 1)) for place in range(3))
    return first, second, third


def late_work(rates: Iterable[float], capacity: float, slack_s: float, warm_up: int = 0) -> float:
    """The late work of rates that begin with an empty queue; that of the first `warm_up` is never late."""
    late = waiting = overdue = 0.0
    served, limit = capacity * THIRD_S, slack_s * capacity
    for place, rate in enumerate(rates):
        kept = min(overdue, OVERDUE_SHARE * served)
        waiting += rate * THIRD_S - (served - kept)
        overdue -= kept
        if waiting < 0:
            overdue, waiting = max(overdue + waiting, 0.0), 0.0
        elif waiting > limit:
            late += waiting - limit if place >= warm_up else 0.0
            overdue, waiting = overdue + waiting - limit, limit
    return late


def constant_capacity(history: WorkHistory, slack_s: float, allowed: float) -> float:
    """The least with which no more than the allowed share (0 to 1) of a history's work would have been late."""
    most = allowed * fsum(RATES[code] * count for code, count in Counter(history.codes).items()) * BIN_S
    turns = [[thirds(rate, turn, history.dispersion) for rate in RATES] for turn in range(3)]

    def keeps(capacity: float) -> bool:
        late = 0.0
        for overload in _overloads(history, turns, capacity, slack_s * capacity + most):
            late += late_work(overload, capacity, slack_s)
            if late > most:
                return False
        return True

    return least_capacity(max(turns[0][max(history.codes)]), keeps)


def least_capacity(enough: float, keeps: Callable[[float], bool]) -> float:
    """The least that keeps, to a thousandth of one that is known to be enough."""
    low, high = 0.0, enough
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if keeps(middle):
            high = middle
        else:
            low = middle
    return high


def busiest(history: WorkHistory) -> float:
    """The highest that a mean over about BUSY_S has been."""
    highest, weight = 0.0, 1 - exp(-BIN_S / BUSY_S)
    for rates in history.segments():
        mean = rates[0]
        for rate in rates:
            mean += weight * (rate - mean)
            highest = max(highest, mean)
    return highest


def _overloads(
    history: WorkHistory, turns: Sequence[Sequence[tuple[float, float, float]]], capacity: float, longest: float
) -> Iterator[list[float]]:
    """The stretches in which work waits, each from a bin that exceeds the capacity to one that ends without a queue, or
    with one that is longer than the longest that matters.
    """
    exceeding = bytes(max(rates) > capacity for rates in turns[0])
    for codes in history.codes.split(b"\0"):
        marks = codes.translate(exceeding)
        place = marks.find(1)
        while place >= 0:
            rates: list[float] = []
            waiting = 0.0
            while place < len(codes) and waiting <= longest and (waiting > 0 or marks[place]):
                for rate in turns[place % 3][codes[place]]:
                    rates.append(rate)
                    waiting = max(waiting + (rate - capacity) * THIRD_S, 0.0)
                place += 1
            yield rates
            place = marks.find(1, place)
