"""Any order of submits, aborts, steps, failures and waits: the books balance, reads find what was written.

In the end all is told. Pages go out to host memory and come back as the price of a prompt token says. `make check`
takes some 3,000 rules, `make test` more than 10,000 and `make nightly` more than 100,000, all invariants after each.
"""

import math
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.engine.reference_scheduler import PAGE, Shadow, beams, next_token, request, scheduler, searched

from paceline_core.registry.enums import RequestClass
from paceline_core.wire import StepTime
from paceline_workers.engine.kv_cache.attention_window import ALL, AttentionWindow
from paceline_workers.engine.scheduling import Request
from paceline_workers.engine.scheduling.search import Search

PAGES = st.integers(3, 24)
MODEL = StepTime(base=0.01, prefill=0.001, sequence=0.0001, kv=0.0001, context=0.0001, observations=99)
CLASSES = st.sampled_from(RequestClass)
LETTERS = st.integers(0, 1)
PROMPTS = st.builds(
    lambda pages, tail: [letter for letter in pages for _ in range(PAGE)] + tail,
    st.lists(LETTERS, max_size=6),
    st.lists(LETTERS, min_size=1, max_size=6),
)
"""Pages of one letter each, so that prefixes meet, and a tail."""


class Engine(RuleBasedStateMachine):
    """A scheduler over few pages, prompts whose prefixes meet, and the shadow that checks reads."""

    @initialize(
        pages=PAGES,
        slots=st.integers(1, 6),
        budget=st.integers(1, 20),
        cache=st.booleans(),
        host=st.integers(0, 6),
        ahead=st.booleans(),
        others=st.fixed_dictionaries(
            {
                "hopeful": st.booleans(),
                "model": st.none() | st.just(MODEL),
                "batching": st.sampled_from(["continuous", "continuous", "dynamic", "static"]),
                "attention_window": st.sampled_from(
                    [ALL, ALL, AttentionWindow(4), AttentionWindow(6, 1), AttentionWindow(9, 5)]
                ),
                "reserved": st.just({}) | st.just({RequestClass.INTERACTIVE: 0.3, RequestClass.BATCH: 0.3}),
                "tpot": st.just({}) | st.just({RequestClass.INTERACTIVE: 0.02}),
            }
        ),
    )
    def begin(
        self, pages: int, slots: int, budget: int, cache: bool, host: int, ahead: bool, others: dict[str, Any]
    ) -> None:
        windows = {RequestClass.INTERACTIVE: 0.003, RequestClass.BATCH: 0.02}
        core = scheduler(pages, slots=slots, budget=budget, prefix_cache=cache, windows=windows, host=host, **others)
        self.run = Shadow(core, ahead=ahead)
        self.prompts: dict[str, list[int]] = {}
        self.searches: dict[str, list[int]] = {}
        self.aborted: set[str] = set()

    @rule(
        prompt=PROMPTS, outputs=st.integers(1, 20), cls=st.sampled_from(RequestClass), patience=st.none() | st.just(5)
    )
    def submit(self, prompt: list[int], outputs: int, cls: RequestClass, patience: int | None) -> None:
        name = f"r{len(self.prompts)}"
        deadline = None if patience is None else self.run.now + patience
        refusal = self.run.core.submit(request(name, prompt, outputs, arrival=self.run.now, cls=cls, deadline=deadline))
        if not refusal:
            self.prompts[name] = prompt

    @rule(prompt=PROMPTS, outputs=st.integers(1, 20), count=st.integers(2, 4), cls=CLASSES)
    def choose(self, prompt: list[int], outputs: int, count: int, cls: RequestClass) -> None:
        """Several choices of one prompt, which wait for the first of them."""
        group = f"g{len(self.prompts)}"
        for _ in range(count):
            name = f"r{len(self.prompts)}"
            entry = request(name, prompt, outputs, arrival=self.run.now, cls=cls, group=group)
            if not self.run.core.submit(entry):
                self.prompts[name] = prompt

    @rule(
        prompt=PROMPTS,
        width=st.integers(1, 4),
        outputs=st.integers(1, 8),
        stops=st.sampled_from([frozenset[int](), frozenset({7}), frozenset(range(0, 50, 5))]),
        cls=CLASSES,
    )
    def search(self, prompt: list[int], width: int, outputs: int, stops: frozenset[int], cls: RequestClass) -> None:
        """A beam search, all of whose beams come and go together."""
        search = Search(width, min(outputs, self.run.core.limits.max_model_len - len(prompt)), stops)
        name = f"s{len(self.searches)}"
        if search.max_tokens > 0:
            entry = beams(name, prompt, search, arrival=self.run.now, cls=cls)
            if not self.run.core.submit(entry):
                self.searches[name] = searched(prompt, search)[0]

    @rule()
    def step(self) -> None:
        """Whoever runs gets on, but for those preempted; and a plan that runs requests is never empty."""
        self.run.events += self.run.core.expire(self.run.now)
        before = {entry.id: entry.wanted for entry in self.run.core.running if _decodes(entry)}
        self.run.step()
        for entry in self.run.core.running:
            assert entry.id not in before or entry.preemptions or entry.wanted == before[entry.id] + 1
        assert self.run.moved or not self.run.core.running

    @rule(seconds=st.sampled_from([0.001, 1.0, 40.0]))
    def wait(self, seconds: float) -> None:
        self.run.now += seconds

    @rule(seconds=st.sampled_from([0.0, math.inf]))
    def reprice(self, seconds: float) -> None:
        """With prompts free to compute nothing is worth copying, in the middle of whatever goes on."""
        self.run.core.memory.offload.prefill_seconds = seconds

    @precondition(lambda self: self.prompts or self.searches)
    @rule(data=st.data(), during=st.booleans())
    def abort(self, data: st.DataObject, during: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.prompts | self.searches)))
        if during:
            self.run.launch()
        if self.run.core.abort(name):
            self.aborted.add(name)
        while len(self.run.flights) > self.run.ahead:
            self.run.collect()

    @rule()
    def fail(self) -> None:
        self.run.launch()
        self.run.fail()

    @invariant()
    def balanced(self) -> None:
        if hasattr(self, "run"):
            self.run.check_books()

    def teardown(self) -> None:
        if not hasattr(self, "run"):
            return
        self.run.drain(limit=2_000)
        assert self.run.core.memory.pool.held == 0
        ends = self.run.ends()
        assert set(ends) | self.aborted == self.prompts.keys() | self.searches.keys()
        for name, answer in self.searches.items():
            assert self.run.text(name) == (answer if ends.get(name) in {"stop", "length"} else [])
        for name, prompt in self.prompts.items():
            probe = request(name, prompt)
            for token in self.run.text(name):
                assert token == next_token(probe)
                probe.tokens.append(token)


def _decodes(entry: Request) -> bool:
    return entry.decoding and entry.beams is None


Engine.TestCase.settings = settings(stateful_step_count=180)
TestEngine = Engine.TestCase
