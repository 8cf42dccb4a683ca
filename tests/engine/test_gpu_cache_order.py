"""No two lines meet at a page, a slot or the memory that pages pass through, whatever is copied after what."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.gpu_clocks import Clocks, Stamp
from tests.engine.test_gpu_cache import IN, OUT, PAGES, SLOTS, cache

from paceline_workers.engine.kv_cache.offload import Copy

pytestmark = pytest.mark.kernels


@dataclass(frozen=True)
class Access:
    """Somebody reads or writes something in a line, right before a mark."""

    what: str
    writes: bool
    mark: Stamp


def of_copy(copy: Copy, marks: list[Stamp]) -> list[Access]:
    """What `cache` does for one copy, and behind which of its marks."""
    if copy.kind is OUT:
        gathered, left = marks
        return [
            Access(f"page {copy.source}", False, gathered),
            Access("leaving", True, gathered),
            Access("leaving", False, left),
            Access(f"slot {copy.target}", True, left),
        ]
    _, read, put = marks
    return [
        Access(f"slot {copy.source}", False, read),
        Access("arriving", True, read),
        Access("arriving", False, put),
        Access(f"page {copy.target}", True, put),
    ]


Step = list[int]
"""The pages that a step reads and writes."""
Work = st.one_of(
    st.builds(Copy, st.just(OUT), st.integers(0, PAGES - 1), st.integers(0, SLOTS - 1)),
    st.builds(Copy, st.just(IN), st.integers(0, SLOTS - 1), st.integers(0, PAGES - 1)),
    st.lists(st.integers(0, PAGES - 1), min_size=1, max_size=2),
)


@given(st.lists(Work, max_size=14))
def test_whoever_touches_what_another_line_has_touched_comes_behind_it(work: list[Copy | Step]) -> None:
    clocks = Clocks()
    made = cache(device=clocks)
    past: list[Access] = []
    for entry in work:
        first = len(clocks.marks)
        if isinstance(entry, Copy):
            made.copy([entry])
            fresh = of_copy(entry, clocks.marks[first:])
        else:
            made.hold([entry])
            clocks.mark()
            fresh = [Access(f"page {page}", True, clocks.marks[-1]) for page in set(entry)]
        for new in fresh:
            for old in past:
                if new.what == old.what and (new.writes or old.writes):
                    assert old.mark.before(new.mark), (old, new)
            past.append(new)
