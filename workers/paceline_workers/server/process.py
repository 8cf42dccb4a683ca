"""The parts of one worker (model, engine, in-flight limiter, load publisher, metrics), and how it drains."""

import contextlib
from dataclasses import dataclass
from hashlib import blake2b

from paceline_core import __version__
from paceline_core.auth import TrustBundle
from paceline_core.clock import Clock
from paceline_core.errors import InvalidInput
from paceline_core.wire import MoveReason
from paceline_workers import demo
from paceline_workers.config import WorkerConfig
from paceline_workers.model_source import locate
from paceline_workers.server.engine.client import EngineClient, Moved
from paceline_workers.server.engine.link import Launch
from paceline_workers.server.filters import registry as filters
from paceline_workers.server.grammar.checks import GrammarChecks, GrammarLink, program
from paceline_workers.server.handlers import embed
from paceline_workers.server.http.exchange import BODIES, WRITE_LIMIT_S, BodyMemory
from paceline_workers.server.load_report import LoadPublisher
from paceline_workers.server.openai.served_model import ServedModel
from paceline_workers.server.prefix_warmup import WarmPrefixes
from paceline_workers.server.request_handler import InFlightLimiter, ServerDeps
from paceline_workers.server.retirement import Retirement
from paceline_workers.server.telemetry.metrics import WorkerMetrics
from paceline_workers.server.telemetry.request_metrics import GenerationTracing
from paceline_workers.server.text.chat import ChatTemplate
from paceline_workers.server.text.tokenizer import Tokenizer
from paceline_workers.server.trial_runs import TrialRuns

OPEN_PER_SLOT, OPEN_LEAST, OPEN_MOST = 8, 256, 4096
"""The most open requests: some for each slot, within bounds that memory and the engine's queue can carry."""

ABORT_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class WorkerServer:
    """Everything the routes need. `since`: the start time in Unix seconds; `link`: the process behind `checks`.

    `anonymous`: requests need no internal token; `probes_apart`: probes and metrics have a port of their own.
    """

    parts: ServerDeps
    board: LoadPublisher
    retirement: Retirement
    trust: TrustBundle
    drain_timeout_s: float
    since: int
    link: GrammarLink
    checks: GrammarChecks
    anonymous: bool
    probes_apart: bool

    @property
    def gate(self) -> InFlightLimiter:
        """Limits the requests in flight."""
        return self.parts.gate

    async def drain(self) -> None:
        """Refuse new requests, finish the running ones, end those that take too long; then end the load streams."""
        self.retirement.end()
        self.gate.drain()
        self.board.drain()
        if not await self.gate.gone(self.drain_timeout_s):
            await self.abort()
        self.board.close()

    async def warm_checks(self) -> None:
        """Start the process that checks grammars; if this fails, the first check starts it."""
        with contextlib.suppress(OSError):
            await self.link.start()

    async def close(self) -> None:
        """End the threads and the process that work for requests."""
        await self.checks.close()
        await self.link.close()
        self.parts.model.tokenizer.close()

    async def abort(self) -> None:
        """End every request now: gateways resume streams elsewhere that have begun, other clients get an error."""
        self.parts.engine.fail_all(Moved(MoveReason.DRAIN, "This worker ended before the answer was complete."))
        await self.gate.gone(ABORT_TIMEOUT_S)


def fingerprint(config: WorkerConfig) -> str:
    """The same for all workers that give the same answer to the same seed, as far as configuration decides that."""
    fields = {"device", "dtype", "kv_dtype", "products", "batch_invariant", "emulate"}
    computes = config.engine.model_dump_json(include=fields)
    parts = f"{config.model}\n{config.revision}\n{computes}"
    return f"paceline-{__version__}-{blake2b(parts.encode(), digest_size=5).hexdigest()}"


def create_worker(
    config: WorkerConfig,
    launch: Launch,
    clock: Clock,
    *,
    write_limit_s: float = WRITE_LIMIT_S,
    tracing: GenerationTracing | None = None,
) -> WorkerServer:
    """Load the model's text side and connect the parts; starts nothing. Raises InvalidInput."""
    # an emulated model has no files; it uses the demo model's tokenizer
    folder = demo.FOLDER if config.engine.emulate else locate(config.model)
    tokenizer = Tokenizer.load(folder)
    template = ChatTemplate.load(folder, tokenizer.special_tokens, clock.utc)
    open_limit = min(max(OPEN_PER_SLOT * config.engine.max_seqs, OPEN_LEAST), OPEN_MOST)
    if config.engine.warm_prefixes and not config.engine.prefix_cache:
        raise InvalidInput("engine.warm_prefixes", "are kept by the prefix cache; turn it on, or leave them out")
    warm = WarmPrefixes.of(config.engine.warm_prefixes, tokenizer, template)
    board, measures = LoadPublisher(config), WorkerMetrics(config, tracing)
    first = warm.warm if warm.prefixes else None
    engine = EngineClient(launch, clock, watchdog_s=config.watchdog_s, warm=first, on_prompt=board.on_prompt)
    engine.listen(board.on_engine)
    engine.listen(measures.on_engine)
    link = GrammarLink(program(folder))
    checks = GrammarChecks(link.check, measures.checked)
    parts = ServerDeps(
        gate=InFlightLimiter(open_limit),
        engine=engine,
        model=ServedModel(
            tuple(config.served_names),
            tokenizer,
            template,
            clock,
            no_embeddings=embed.refusal(folder),
            filters=filters.read(config.filters),
            warm=warm,
            fingerprint=fingerprint(config),
            check=checks.check,
            trusts_templates=config.trust_request_chat_template,
        ),
        measures=measures,
        clock=clock,
        body_limit=config.body_limit,
        trials=TrialRuns(board.on_cleared),
        write_limit_s=write_limit_s,
        step_tokens=config.engine.step_tokens,
        bodies=BodyMemory(BODIES * config.body_limit),
    )
    trust = TrustBundle(config.trust_bundle, config.service, clock)
    since = int(clock.utc().timestamp())
    apart = config.metrics is not None
    retirement, timeout_s = Retirement(parts.gate, board), config.drain_timeout_s
    return WorkerServer(parts, board, retirement, trust, timeout_s, since, link, checks, config.open_to_all, apart)
