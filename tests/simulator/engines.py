"""An engine small enough to run out of pages, and one as the tables of the simulator have it."""

from dataclasses import dataclass, field

import pytest

from paceline_core.wire import KVLoad, LoadReport, StepTime, WorkerState
from paceline_planner.step_clock import FittedClock
from paceline_simulator.engine import EngineSpec, SimulatedEngine, Submission
from paceline_simulator.events import EventQueue
from paceline_workers.engine.scheduling import SchedulerLimits
from paceline_workers.messages import Tokens

MODEL = StepTime(base=0.013, prefill=6e-5, sequence=3e-5, kv=4e-8, context=3.5e-9, observations=1000)
REPORT = LoadReport(
    worker="chat-main-0",
    service="default/chat",
    revision="r1",
    pool="main",
    state=WorkerState.STARTING,
    slots=1,
    kv=KVLoad(page_tokens=1, total=1, free=1),
    step_time=MODEL,
    max_model_len=1,
)


@dataclass
class Client:
    """Notes first tokens and ends, by request and time."""

    events: EventQueue
    first: dict[str, float] = field(default_factory=dict)
    ends: dict[str, tuple[float, str]] = field(default_factory=dict)

    def on_first_token(self, engine: SimulatedEngine, submission: Submission) -> None:
        self.first[submission.request.id] = self.events.now

    def on_end(self, engine: SimulatedEngine, submission: Submission, frame: Tokens) -> None:
        self.ends[submission.request.id] = (self.events.now, frame.finish)


def spec(pages: int = 4000, *, seqs: int = 64, ahead: bool = True, leaps: bool = True, page: int = 16) -> EngineSpec:
    limits = SchedulerLimits(
        max_model_len=pages * page, vocab_size=1 << 31, page_tokens=page, max_seqs=seqs, step_tokens=2048
    )
    return EngineSpec(FittedClock(MODEL), MODEL, limits, pages, ahead=ahead, leaps=leaps)


@pytest.fixture
def events() -> EventQueue:
    return EventQueue()


@pytest.fixture
def client(events: EventQueue) -> Client:
    return Client(events)


@pytest.fixture
def engine(events: EventQueue, client: Client) -> SimulatedEngine:
    return SimulatedEngine(spec(), events, client, REPORT)
