"""Closed sets of label values. A value outside its set never reaches a metric."""

from enum import StrEnum


class RequestClass(StrEnum):
    """Urgency of a request, most urgent first."""

    INTERACTIVE = "interactive"
    BATCH = "batch"
    OFFLINE = "offline"


class Outcome(StrEnum):
    """How a request ended."""

    OK = "ok"
    SHED = "shed"
    QUOTA = "quota"
    CLIENT_ERROR = "client_error"
    UPSTREAM_ERROR = "upstream_error"
    STREAM_ERROR = "stream_error"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"


class Verdict(StrEnum):
    """The judgement of a request against one SLO target."""

    GOOD = "good"
    BAD_TTFT = "bad_ttft"
    BAD_TPOT = "bad_tpot"
    BAD_E2E = "bad_e2e"
    BAD_FAILED = "bad_failed"


class Phase(StrEnum):
    """Where a request's time went; the phases sum to its end-to-end time within 5 %."""

    ADMIT = "admit"
    TOKENIZE = "tokenize"
    QUEUE = "queue"
    BATCH_WAIT = "batch_wait"
    PREFILL = "prefill"
    DECODE = "decode"
    POST = "post"
    NETWORK = "network"


class ResumeReason(StrEnum):
    """Why a stream had to continue at another worker."""

    CONNECTION = "connection"
    STALL = "stall"
    DRAIN = "drain"
    EVACUATE = "evacuate"
    ENGINE = "engine"


class AbortReason(StrEnum):
    """Why a stream that lost its worker could not continue at another one."""

    UNSUPPORTED_RUNTIME = "unsupported_runtime"
    """The worker does not say which tokens it sends."""
    JOURNAL_OVERFLOW = "journal_overflow"
    """The client received more than the gateway keeps."""
    INCONSISTENT = "inconsistent"
    """The data that the client received is inconsistent."""
    MAX_ATTEMPTS = "max_attempts"
    DEADLINE_EXCEEDED = "deadline_exceeded"


class ShedReason(StrEnum):
    """Why a request was not let into a queue, or had to leave it."""

    QUEUE_FULL = "queue_full"
    BYTES = "bytes"
    NO_WORKER = "no_worker"
    """There is no worker, and too many requests wait for one."""
    TENANT_SHARE = "tenant_share"
    """Its tenant has its full share of the queue."""
    DISPLACED = "displaced"
    """Its tenant had more than its share when another request arrived."""
    DEADLINE_UNREACHABLE = "deadline_unreachable"
    """It would have waited beyond its deadline."""
    DEADLINE_EXCEEDED = "deadline_exceeded"
    """It waited until its deadline."""
    OVERLOADED = "overloaded"
    """It was an offline request for a service that could not keep its promise to interactive ones."""


class ClientLimit(StrEnum):
    """Limits of a gateway on all of its clients together."""

    BODY_MEMORY = "body_memory"
    """A body did not fit into its tenant's share of the memory, or into all of it."""
    TENANT_CONNECTIONS = "tenant_connections"
    """A tenant had its full number of answers under way."""
    CONNECTIONS = "connections"
    """A new connection came while every place had an answer under way."""
    EVICTED = "evicted"
    """A connection without a request under way was closed for a new one."""
    LOOP_BUDGET = "loop_budget"
    """A turn of the event loop ended with unread bytes of clients; they waited for the next turn."""


class FallbackReason(StrEnum):
    """Why a request moved to another destination of its route."""

    OVERLOADED = "overloaded"
    """The predicted wait breaks the promise."""
    QUEUE_FULL = "queue_full"
    """The service would refuse it, or it had to leave the queue."""
    UNAVAILABLE = "unavailable"
    """No worker is eligible."""
    TIMEOUT = "timeout"
    """No worker had room for it within its share of the waiting time."""
    ERROR = "error"
    """Workers lost it, failed it or refused it, and no other worker is left."""
    DEGRADED = "degraded"
    """Its route names a smaller model for while the service cannot keep its promise."""


class DegradeKind(StrEnum):
    """How an answer was less than asked for."""

    MODEL = "model"
    """A smaller model gave it."""
    MAX_TOKENS = "max_tokens"
    """It had fewer output tokens at its disposal."""


class GrammarCheck(StrEnum):
    """How a worker's check of a grammar ended."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    TIME = "time"
    """It exceeded its CPU time."""
    MEMORY = "memory"
    """It exceeded its memory."""
    FULL = "full"
    """Too many checks were waiting."""
    FAILED = "failed"
    """The checking process has ended, or did not answer."""


class Direction(StrEnum):
    """The effect of an autoscaler's decision on a pool."""

    UP = "up"
    DOWN = "down"
    HOLD = "hold"


class ScaleReason(StrEnum):
    """The reason for a decision; one sentence with numbers accompanies it."""

    DEMAND = "demand"
    BACKLOG = "backlog"
    ATTAINMENT = "attainment"
    SCALE_FROM_ZERO = "scale_from_zero"
    SCALE_TO_ZERO = "scale_to_zero"
    CONSOLIDATE = "consolidate"
    BOUNDS = "bounds"
    STEADY = "steady"
    PENDING = "pending"
    COOLDOWN = "cooldown"
    MISSING_DATA = "missing_data"
    PAUSED = "paused"
    ADVISE = "advise"
    EXTERNAL = "external"
    SCALER_CONFLICT = "scaler_conflict"
    """Someone else sets the replicas too, and the autoscaler yields."""


class ScaleLimit(StrEnum):
    """What limited a decision."""

    NONE = "none"
    MIN = "min"
    MAX = "max"
    BUDGET = "budget"
    CAPACITY = "capacity"
    RATE = "rate"


class ReplicaState(StrEnum):
    """The states by which replicas are counted."""

    DESIRED = "desired"
    READY = "ready"
    STARTING = "starting"
    DRAINING = "draining"


class QueryResult(StrEnum):
    """The six answers of a metrics source (DESIGN 7)."""

    VALUE = "value"
    EMPTY = "empty"
    NAN = "nan"
    STALE = "stale"
    PARTIAL = "partial"
    ERROR = "error"
