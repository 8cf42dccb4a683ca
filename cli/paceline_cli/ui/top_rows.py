"""A frame of all gateways: one row a class, a tenant, a worker. Plain data."""

from dataclasses import asdict, dataclass
from typing import Any

from paceline_cli.ui.gateway_poll import UnreachableGateway


@dataclass(frozen=True, slots=True)
class Time:
    """A quantile of TTFT or TPOT in seconds: what was observed, None without requests, and what is promised, if so."""

    quantile: float
    observed: float | None
    promised: float | None

    @property
    def broken(self) -> bool:
        return self.observed is not None and self.promised is not None and self.observed > self.promised


@dataclass(frozen=True, slots=True)
class ClassRow:
    """One class of one service. Rates are per second; `oldest_s` and `wait_s` of its line, `held` of the service."""

    service: str
    name: str
    requests: float
    tokens: float
    in_flight: int
    queued: int
    held: int
    oldest_wait_s: float
    wait_s: float | None
    ttft: Time
    tpot: Time


@dataclass(frozen=True, slots=True)
class Use:
    """How far one limit is used; None: there is none, or nothing is known."""

    used: float | None
    limit: float | None

    @property
    def share(self) -> float:
        if self.used is None or self.limit is None:
            return 0.0
        return self.used / self.limit if self.limit else 1.0


@dataclass(frozen=True, slots=True)
class TenantRow:
    """One tenant that has used something lately."""

    tenant: str
    open: int
    queued: int
    requests: Use
    input_tokens: Use
    output_tokens: Use
    concurrency: Use
    month_tokens: Use
    month_dollars: Use

    @property
    def tightest(self) -> float:
        """The share of whatever limit is used most."""
        uses = (self.requests, self.input_tokens, self.output_tokens, self.concurrency)
        return max(use.share for use in (*uses, self.month_tokens, self.month_dollars))


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """One worker; `in_flight` and `picks` (per second) are those of all gateways, the rest what one heard last."""

    service: str
    worker: str
    pool: str
    state: str
    in_flight: int
    slots: int | None
    backlog_tokens: int
    kv: float
    circuit: str
    picks: float
    heard_s_ago: float | None


@dataclass(frozen=True, slots=True)
class Frame:
    """One refresh. `window_s`: what rates and quantiles are over; `silent`: gateways that did not answer; `cut`: a list
    was longer than what is asked for."""

    time: str
    window_s: float
    gateways: tuple[str, ...]
    silent: tuple[UnreachableGateway, ...]
    truncated: bool
    classes: tuple[ClassRow, ...]
    tenants: tuple[TenantRow, ...]
    workers: tuple[WorkerRow, ...]

    def document(self) -> dict[str, Any]:
        return {"v": 1, **asdict(self)}
