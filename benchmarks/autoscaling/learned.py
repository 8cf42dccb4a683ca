"""What our autoscaler knows when a scored window begins: what it learned on the cell's tuning window.

`python -m benchmarks.autoscaling learn` runs it there in the exact simulator, on the requests that rivals are tuned on,
and keeps what it learned in benchmarks/results/autoscaling/learned.json. `library` scales the same histories to a mean
of 1, for services that have none.
"""

import json
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from benchmarks.autoscaling.store import FOLDER
from benchmarks.simulator.cells import TARGET
from pydantic import TypeAdapter

from paceline_autoscaler.model.work_history import BIN_S, RATES, WorkHistory, code_of
from paceline_autoscaler.policies.codec import dump_state, load_state
from paceline_autoscaler.policies.replica_policy import ProductionPolicy, having_started
from paceline_autoscaler.state import Knowledge, LearnedState, State
from paceline_simulator.cluster import EPOCH

FILE = FOLDER / "learned.json"
_KNOWLEDGE = TypeAdapter(Knowledge)


@dataclass(frozen=True, slots=True)
class Learned:
    """By the end of a tuning window."""

    state: State
    knowledge: Knowledge

    @classmethod
    def of(cls, policy: ProductionPolicy) -> "Learned":
        """The histories, lengths, speeds and drains, without what it concluded from missed targets."""
        known = policy.state.learned
        kept = LearnedState(
            drains_s=known.drains_s, output_tokens=known.output_tokens, completed=known.completed, speeds=known.speeds
        )
        return cls(State(learned=kept), Knowledge(policy.recorder.histories))

    def policy(self, lead_s: float, times: float = 1.0, lag_s: float = 1.0) -> ProductionPolicy:
        """Our policy at the begin of a window where starts take `lead_s` and `times` the requests come."""
        learned = replace(self.state.learned, starts=having_started({TARGET.pool: lead_s}).learned.starts)
        histories = tuple((role, before(_scaled(history, times))) for role, history in self.knowledge.histories)
        return ProductionPolicy(lag_s=lag_s, state=State(learned=learned), knowledge=Knowledge(histories))

    @property
    def json(self) -> dict[str, Any]:
        return {"state": dump_state(self.state), "knowledge": _KNOWLEDGE.dump_python(self.knowledge, mode="json")}


def keep(found: dict[str, Learned]) -> None:
    """Add what was learned on these cells to the file."""
    rows = {**_rows(), **{name: learned.json for name, learned in found.items()}}
    FILE.write_text(json.dumps(dict(sorted(rows.items())), indent=1) + "\n")


@cache
def learned(cell: str) -> Learned:
    row = _rows()[cell]
    return Learned(load_state(row["state"]), _KNOWLEDGE.validate_python(row["knowledge"]))


def library() -> WorkHistory:
    """The histories of all cells one after the other, each with a mean of 1, a gap after each."""
    found = [history for cell in _rows() for _, history in learned(cell).knowledge.histories]
    scaled = [_scaled(history, 1 / _mean(history)) for history in found]
    return WorkHistory(
        codes=b"".join(history.codes + b"\0" for history in scaled),
        variance=sum(history.dispersion for history in scaled) / len(scaled),
        mean=1.0,
    )


def _rows() -> dict[str, Any]:
    rows: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {}
    return rows


def _mean(history: WorkHistory) -> float:
    known = [RATES[code] for code in history.codes if code]
    return sum(known) / len(known)


def _scaled(history: WorkHistory, times: float) -> WorkHistory:
    codes = bytes(code_of(RATES[code] * times) if code else 0 for code in history.codes)
    return replace(history, codes=codes, variance=history.variance * times**2, mean=history.mean * times)


def before(history: WorkHistory) -> WorkHistory:
    """The same history, ended a bin before a window begins."""
    return replace(history, begin=EPOCH.timestamp() - (len(history.codes) + 1) * BIN_S)
