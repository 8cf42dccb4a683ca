"""The production policy, each of its decisions computed again from what the ledger would write of it.

A file of its own: nothing else of the comparison knows the ledger.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from paceline_autoscaler.output.ledger_entry import LedgerEntry, decode, encode
from paceline_autoscaler.output.replay import replay
from paceline_autoscaler.policies import decide
from paceline_autoscaler.policies.replica_policy import ProductionPolicy
from paceline_autoscaler.types import Observation


@dataclass(slots=True)
class Replayed:
    """`equal` of `decisions` came out the same, byte for byte."""

    policy: ProductionPolicy = field(default_factory=ProductionPolicy)
    equal: int = 0
    decisions: int = 0

    @property
    def period_s(self) -> float:
        return self.policy.period_s

    @property
    def lag_s(self) -> float:
        return self.policy.lag_s

    @property
    def retires(self) -> bool:
        return self.policy.retires

    def replicas(self, observation: Observation) -> Mapping[str, int]:
        before, knowledge = self.policy.state, self.policy.knowledge
        counts = self.policy.replicas(observation)
        decision, _ = decide(observation, before, knowledge)
        records, line = encode(LedgerEntry("change", 0, before, knowledge, observation, decision))
        read = decode(iter([*(record.line for record in records), line]), "ledger")
        same = [entry for entry in read if isinstance(entry, LedgerEntry)]
        self.decisions += 1
        self.equal += bool(same) and not replay(same) and {p.name: p.replicas for p in decision.pools} == counts
        return counts
