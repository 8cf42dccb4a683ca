"""`/v1/drain` and `/v1/log-level`: changes from outside; each needs a token by a signing key.

The token's issuer must be `admin`: tokens that gateways and the autoscaler send each other are refused. A page in a
browser cannot send the header, and so cannot drain a gateway on the same host.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from fastapi import FastAPI, Request
from pydantic import BaseModel, ConfigDict, ValidationError

from paceline_core.auth import TrustBundle
from paceline_core.auth.internal_token import GATEWAY_AUDIENCE, HEADER
from paceline_core.clock import Clock
from paceline_core.errors import Code, RequestError
from paceline_core.telemetry import get_logger, log_level, set_level
from paceline_core.units import seconds
from paceline_gateway.admin.views import DrainStage, DrainView, LogLevel

ISSUER = "admin"
BODY_BYTES = 1024
MAX_S = 86_400.0
_log = get_logger(__name__)


def require(request: Request, trust: TrustBundle, issuer: str, who: str, how: str = "") -> None:
    """Raise RequestError unless the request has a token of this issuer; `who` names it, `how` says how to get one."""
    claims = trust.claims(request.headers.get(HEADER, ""))
    if claims is None or claims.issuer != issuer:
        raise RequestError(Code.INVALID_API_KEY, f"Send {HEADER}: a token of {who} for {GATEWAY_AUDIENCE}{how}.")


class WantedLevel(BaseModel):
    """`duration`: such as `10m`, after which the usual level returns; without it the level stays."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    level: Literal["debug", "info", "warning", "error"]
    duration: str | None = None


class LogLevelOverride:
    """The process's log level: the usual one, and the time until which another one holds."""

    def __init__(self) -> None:
        self.usual = log_level()
        self._until: float | None = None

    def want(self, name: str, for_s: float | None, now: float) -> None:
        _log.warning("the log level changes", extra={"to": name, "for_s": for_s})
        set_level(name)
        self._until = None if for_s is None or name == self.usual else now + for_s

    def sweep(self, now: float) -> None:
        """Return to the usual level when the time is over."""
        if self._until is not None and now >= self._until:
            self._until = None
            set_level(self.usual)
            _log.warning("the log level is the usual one again", extra={"to": self.usual})

    def view(self, now: float) -> LogLevel:
        left = None if self._until is None else round(max(self._until - now, 0.0), 3)
        return LogLevel(level=log_level(), usual=self.usual, left_s=left)


class DrainState:
    """`asked` is set when a drain is requested; `until` is the monotonic time by which the stage ends at the latest."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.stage = DrainStage.SERVING
        self.until: float | None = None

    def ask(self) -> None:
        """Request a drain; it begins when the process next runs."""
        self.asked.set()
        if self.stage is DrainStage.SERVING:
            self.enter(DrainStage.SETTLING)

    def enter(self, stage: DrainStage, until: float | None = None) -> None:
        self.stage, self.until = stage, until


@dataclass(frozen=True, slots=True)
class AdminControl:
    """What can be changed. `open` counts requests, `connections` those with a request under way."""

    leaving: DrainState
    levels: LogLevelOverride
    clock: Clock
    open: Callable[[], int]
    connections: Callable[[], int]

    def drain(self) -> DrainView:
        """The progress of the drain."""
        until = self.leaving.until
        left = None if until is None else round(max(until - self.clock.monotonic(), 0.0), 3)
        return DrainView(stage=self.leaving.stage, open=self.open(), connections=self.connections(), left_s=left)


def add_control(app: FastAPI, control: AdminControl, trust: TrustBundle) -> None:

    @app.get("/v1/drain")
    async def drained() -> DrainView:
        """The progress of the drain."""
        return control.drain()

    @app.post("/v1/drain", status_code=202)
    async def drain(request: Request) -> DrainView:
        """Drain as on SIGTERM; further requests change nothing. The process ends when the drain is done."""
        _authorized(request, trust)
        _short(request)
        if not control.leaving.asked.is_set():
            _log.warning("a drain was asked for at the admin port")
            control.leaving.ask()
        return control.drain()

    @app.get("/v1/log-level")
    async def get_log_level() -> LogLevel:
        """The current log level, and the usual one."""
        return control.levels.view(control.clock.monotonic())

    @app.put("/v1/log-level", openapi_extra=_BODY)
    async def set_log_level(request: Request) -> LogLevel:
        """Set the log level for a while or until it is set again."""
        _authorized(request, trust)
        _short(request)
        wanted, now = _wanted(await request.body()), control.clock.monotonic()
        control.levels.want(wanted.level, _for_s(wanted.duration), now)
        return control.levels.view(now)


_BODY = {"requestBody": {"content": {"application/json": {"schema": WantedLevel.model_json_schema()}}}}


def _authorized(request: Request, trust: TrustBundle) -> None:
    require(request, trust, ISSUER, ISSUER, "; `python -m paceline_gateway.admin` beside the gateway makes one")


def _short(request: Request) -> None:
    """Refuse a long body before it is read."""
    length = request.headers.get("content-length")
    if length is None and "transfer-encoding" not in request.headers:
        return
    if length is None or not length.isdigit() or int(length) > BODY_BYTES:
        raise RequestError(Code.REQUEST_TOO_LARGE, f"Send content-length, {BODY_BYTES} bytes at most.")


def _wanted(body: bytes) -> WantedLevel:
    try:
        return WantedLevel.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        fix = 'send {"level": "debug", "duration": "10m"}; levels are debug, info, warning, error'
        message = f"{field or 'the body'}: {first['msg']}; {fix}."
        raise RequestError(Code.INVALID_REQUEST, message, param=field or None) from None


def _for_s(duration: str | None) -> float | None:
    if duration is None:
        return None
    try:
        for_s = seconds(duration)
    except ValueError as error:
        raise RequestError(Code.INVALID_REQUEST, f"duration: {error}.", param="duration") from None
    if not 0 < for_s <= MAX_S:
        raise RequestError(Code.INVALID_REQUEST, "duration: must be above 0 and at most 24h.", param="duration")
    return for_s
