"""The gateway's configuration file. Nothing in it reloads live; what changes while it runs are the objects."""

from pathlib import Path

from pydantic import Field

from paceline_core.config import Config, Listen

_MIB = 1 << 20


class Limits(Config):
    """Every cap and every wait. Sizes in bytes, times in seconds."""

    head_bytes: int = Field(default=32 << 10, ge=1024)
    body_bytes: int = Field(default=8 * _MIB, ge=1024)
    memory_bytes: int = Field(default=1024 * _MIB, ge=1024)
    """Bodies in memory over all connections; beyond it requests are refused with no_capacity."""
    answer_bytes: int = Field(default=32 * _MIB, ge=1024)
    """An answer that does not stream is collected whole, so that it can be retried; a longer one fails."""
    connections: int = Field(default=10_000, ge=1)

    idle_s: float = Field(default=75.0, gt=0)
    head_s: float = Field(default=10.0, gt=0)
    body_s: float = Field(default=60.0, gt=0)
    write_s: float = Field(default=30.0, gt=0)
    """How long a client may read nothing while data waits for it."""
    linger_s: float = Field(default=1.0, gt=0)
    """How long a refused client's remaining bytes are read and dropped, so that the refusal reaches it."""

    connect_s: float = Field(default=2.0, gt=0)
    first_token_s: float = Field(default=120.0, gt=0)
    """From dispatch to the first token of a stream."""
    stall_s: float = Field(default=60.0, gt=0)
    """Longest silence inside a stream."""
    answer_s: float = Field(default=600.0, gt=0)
    """From dispatch to the end of an answer that does not stream."""
    upstream_idle_s: float = Field(default=30.0, gt=0)
    load_silence_s: float = Field(default=6.0, gt=0)
    """A worker whose load stream says nothing for this long is picked only when nobody else is left."""

    held_requests: int = Field(default=1024, ge=1)
    """Waiting requests of one service while it has no worker."""
    queue_bytes: int = Field(default=256 * _MIB, ge=1024)
    """Bodies waiting for one service."""
    lookahead_s: float = Field(default=0.5, gt=0)
    """Prompt work a worker is given ahead of time; the rest waits here, where another worker can still take it."""


class GatewayConfig(Config):
    """Everything one gateway needs to know. Public port: the OpenAI API; admin port: metrics, health, demand."""

    name: str = "gateway"
    listen: Listen = Listen(port=8080)
    admin: Listen = Listen(port=8081)
    socket: Path
    """The local supervisor's Unix socket."""
    namespace: str = "paceline-system"
    """Where Tenants and key Secrets are honoured."""
    hop_key: Path
    """Private key of this gateway's hop tokens: a file of 32 raw bytes."""
    trust: Path
    """Public keys that the autoscaler's hop tokens are checked with: a YAML map of key id to base64."""
    access_log: bool = True
    drain_s: float = Field(default=30.0, gt=0)
    """How long open streams may run on after SIGTERM."""
    limits: Limits = Limits()
