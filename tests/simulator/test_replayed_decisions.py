"""Every decision of a run can be computed again from what the ledger writes of it, bit for bit."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.simulator.engines import pool_plan, run_plan, spec
from tests.simulator.test_simulation import arrivals

from paceline_autoscaler.model.work_history import WorkHistory, code_of
from paceline_autoscaler.output.ledger_entry import LedgerEntry, decision_json, decode, encode
from paceline_autoscaler.policies import decide, dump_state
from paceline_autoscaler.policies.replica_policy import ProductionPolicy
from paceline_autoscaler.state import Knowledge, State
from paceline_autoscaler.types import Observation
from paceline_core.registry.enums import Direction
from paceline_simulator.simulation import Simulation

WAVE = WorkHistory(codes=bytes(code_of(0.5 + (n * 7 % 20) / 5) for n in range(400)), variance=0.1, mean=2.0)


@dataclass(slots=True)
class Recorded:
    """The production policy, its decisions with their inputs, and the state after each."""

    policy: ProductionPolicy
    entries: list[tuple[LedgerEntry, State]] = field(default_factory=list)
    period_s: float = 1.0
    lag_s: float = 1.0
    retires: bool = True

    def replicas(self, observation: Observation) -> Mapping[str, int]:
        before, knowledge = self.policy.state, self.policy.knowledge
        counts = self.policy.replicas(observation)
        decision, _ = decide(observation, before, knowledge)
        assert {pool.name: pool.replicas for pool in decision.pools} == counts
        self.entries.append((LedgerEntry("change", 0, before, knowledge, observation, decision), self.policy.state))
        return counts


def test_every_decision_of_a_run_is_the_same_after_the_ledger_has_written_and_read_it() -> None:
    recorded = Recorded(ProductionPolicy(knowledge=Knowledge((("both", WAVE),))))
    pool = pool_plan(lead_s=10.0, made=spec(8000), lost_per_hour=60.0, notice_s=2.0)
    result = Simulation(run_plan(arrivals(9.0, 60.0, prompt=3000, output=60), recorded, pool=pool)).run()
    assert len(recorded.entries) > 50
    assert max(moment.ready for moment in result.timeline) > 1
    assert {entry.decision.direction for entry, _ in recorded.entries} >= {Direction.UP, Direction.HOLD}
    for entry, after in recorded.entries:
        records, line = encode(entry)
        (read,) = decode(iter([*(record.line for record in records), line]), "ledger")
        assert isinstance(read, LedgerEntry)
        decision, state = decide(read.observation, read.state, read.knowledge)
        assert decision_json(decision) == decision_json(entry.decision)
        assert dump_state(state) == dump_state(after)
        assert state == after
