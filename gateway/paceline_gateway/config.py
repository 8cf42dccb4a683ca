"""The gateway's configuration file. It is read once; only objects and keys change while the gateway runs."""

import socket
from pathlib import Path
from typing import Annotated

from pydantic import Field

from paceline_core.config import ORIGIN_PATTERN, Config, Listen
from paceline_core.kube.connect import ClusterConfig

_MIB = 1 << 20


class HttpLimits(Config):
    """All caps and time limits. Sizes in bytes, times in seconds."""

    head_bytes: int = Field(default=32 << 10, ge=1024)
    body_bytes: int = Field(default=8 * _MIB, ge=1024)
    memory_bytes: int = Field(default=1024 * _MIB, ge=1024)
    """Bodies in memory over all connections; beyond it requests are refused with no_capacity. A tenant may hold eight
    times what is free."""
    answer_bytes: int = Field(default=32 * _MIB, ge=1024)
    """An answer that does not stream is collected whole, so that it can be retried; a longer one fails."""
    connections: int = Field(default=10_000, ge=1)
    """Open connections; when all are taken, those without a request under way make room. A tenant may have answers
    under way on eight times as many as are free."""

    keepalive_timeout_s: float = Field(default=75.0, gt=0)
    header_timeout_s: float = Field(default=10.0, gt=0)
    body_timeout_s: float = Field(default=60.0, gt=0)
    write_timeout_s: float = Field(default=30.0, gt=0)
    """How long a client may read nothing while data waits for it."""
    lingering_close_s: float = Field(default=1.0, gt=0)
    """How long a refused client's remaining bytes are read and dropped, so that the refusal reaches it."""

    connect_s: float = Field(default=2.0, gt=0)
    first_token_s: float = Field(default=120.0, gt=0)
    """From dispatch to the first token of a stream."""
    stream_idle_timeout_s: float = Field(default=60.0, gt=0)
    """Longest silence inside a stream."""
    answer_s: float = Field(default=600.0, gt=0)
    """From dispatch to the end of an answer that does not stream."""
    resume_s: float = Field(default=60.0, gt=0)
    """From the loss of a stream's worker to the next token, from another worker."""
    resume_bytes: int = Field(default=1_000_000, ge=0, le=1_000_000)
    """Bytes kept of a stream to resume it: some 13 bytes a token. A longer one cannot resume at another worker."""
    upstream_keepalive_timeout_s: float = Field(default=30.0, gt=0)
    load_silence_s: float = Field(default=6.0, gt=0)
    """A worker whose load stream sends nothing for this long is picked only when no other worker is left."""

    held_requests: int = Field(default=1024, ge=1)
    """Waiting requests of one service while it has no worker."""
    queue_bytes: int = Field(default=256 * _MIB, ge=1024)
    """Bodies waiting for one service."""
    lookahead_s: float = Field(default=0.5, gt=0)
    """Prompt work that a worker gets in advance; the rest waits here, where another worker can still take it."""
    prefix_bytes: int = Field(default=32 * _MIB, ge=1024)
    """Bytes for one service's known prefix keys; the least recently used are forgotten first."""


class RedisConfig(Config):
    """Redis or Valkey, where several gateways share quota counters."""

    url: str = Field(pattern=r"^rediss?://[^@]+$")
    """`redis://host:6379/0`, or `rediss://` for TLS. User and password have their own fields."""
    username: str = ""
    password_file: Path | None = None
    """Read at each connect, so that a rotated password needs no restart."""
    ca_file: Path | None = None
    """The certificates that verify a `rediss` server. Default: the system's."""
    prefix: str = Field(default="paceline", min_length=1)
    """The prefix of every key; the namespace follows."""
    timeout_s: float = Field(default=0.25, gt=0)
    """Time limit of one connect and of one answer."""

    def credentials(self) -> tuple[str] | tuple[str, str]:
        """The current user and password. Raises OSError when the file cannot be read."""
        password = "" if self.password_file is None else self.password_file.read_text().strip()
        return (self.username, password) if self.username else (password,)


class Quota(Config):
    """Where tenants' limits are counted. Without a shared store each gateway counts alone."""

    redis: RedisConfig | None = None
    lease: bool = False
    """Without a Redis: share through the gateway that holds the Lease `paceline-quota`."""
    wait_s: float = Field(default=0.25, gt=0)
    """Longest that a request waits for the shared counters; then its tenant's onStoreFailure is followed."""
    gateways: int = Field(default=1, ge=1)
    """The number of gateways until the shared store has reported one."""


class GatewayConfig(Config):
    """The configuration of one gateway. Public port: the OpenAI API; admin port: metrics, health, demand."""

    name: str = Field(default_factory=socket.gethostname, min_length=1)
    """The name under which demand is reported; unique among gateways. Default: the host's name, which in a pod is the
    pod's."""
    listen: Listen = Listen(port=8080)
    admin: Listen = Listen(port=8081)
    cluster: ClusterConfig = ClusterConfig()
    """The API server: the local supervisor's socket, a kubeconfig, or by default the pod's own cluster."""
    namespace: str = "paceline-system"
    """The namespace of Tenants."""
    key_namespace: str = ""
    """The namespace of key Secrets. Empty: `<namespace>-tenant-keys`."""
    signing_key: Path
    """Private key of this gateway's internal tokens: a file of 32 raw bytes, read again when it changes."""
    trust_bundle: Path
    """Public keys that verify the autoscaler's internal tokens: a JWK set, read again when it changes."""
    access_log: bool = True
    cors_origins: tuple[Annotated[str, Field(pattern=ORIGIN_PATTERN)], ...] = ()
    """Origins of pages that may read answers in a browser, such as `https://chat.example.com`; `*`: every page."""
    lame_duck_s: float = Field(default=0.0, ge=0)
    """How long new requests are accepted after SIGTERM: until every load balancer knows that this gateway leaves."""
    drain_s: float = Field(default=30.0, gt=0)
    """How long open streams may run on after that."""
    limits: HttpLimits = HttpLimits()
    quota: Quota = Quota()
