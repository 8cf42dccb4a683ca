"""`paceline bench`: offer load to an OpenAI endpoint, check every stream, judge the promise.

One run from start to end: measure the prompt's cost, offer the schedule, watch the stack, judge.
"""

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer
from rich.console import Console

from paceline_cli.bench.attach import Attached, attach, temporary_stack
from paceline_cli.bench.client import BenchTarget, Client
from paceline_cli.bench.observation import LEDGER, BenchObservation, Decisions, decisions_since
from paceline_cli.bench.openloop import Arrival, Ending, OpenLoop
from paceline_cli.bench.profiles import (
    PROBE_WORDS,
    BenchOptions,
    Calibration,
    Profile,
    ProfileName,
    Writer,
    calibrate,
    profile_of,
    schedule,
)
from paceline_cli.bench.report import Report, Run, parse_target
from paceline_cli.bench.report import report as judge
from paceline_cli.bench.table import render
from paceline_cli.bench.trace_load import trace_profile
from paceline_cli.bench.watch import Watch, scrape
from paceline_cli.commands import command_app
from paceline_cli.commands.local.state import DEFAULT, AsJson, State
from paceline_cli.commands.trace_options import TRACE_HELP, Crowd, From, Span, Times, replay_of
from paceline_cli.up.session import interrupts
from paceline_core import objects
from paceline_core.clock import Clock, SystemClock, rfc3339
from paceline_core.errors import InvalidInput, Unreachable
from paceline_core.kube import ObjectKey, ScaleTarget
from paceline_core.registry import RequestClass
from paceline_core.units import brief, seconds
from paceline_local.rundir import read_record
from paceline_simulator.replay import Replay
from paceline_simulator.traces import read_trace

PLAIN_WIDTH = 120
INTERRUPTED = 130

app = command_app()


@dataclass(frozen=True, slots=True)
class Where:
    """The stack to measure: a temporary one from `file`, that in `state`, or an endpoint by `url`, `key`, `model`."""

    file: Path | None
    state: Path
    url: str | None
    key: str | None
    model: str | None


@dataclass(frozen=True, slots=True)
class Load:
    """The load to offer, and the promise to judge; without targets, the service's own. `arrivals`: of a trace."""

    profile: Profile
    seed: int
    targets: tuple[objects.Target, ...]
    limit_s: float
    arrivals: tuple[Arrival, ...] = ()


@app.command(help="Offer load and judge the promise; exit 1 when the run is void.")
def bench(  # noqa: PLR0913, PLR0917 - one argument for each option
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Start these manifests for this run alone.")] = None,
    url: Annotated[str | None, typer.Option("--url", help="Any OpenAI endpoint; else the local run's.")] = None,
    key: Annotated[str | None, typer.Option("--key", help="API key; else the local tenant's.")] = None,
    model: Annotated[str | None, typer.Option("--model", help="Model name; needed where several are served.")] = None,
    profile: Annotated[
        ProfileName | None, typer.Option("--profile", help="Shape of the load.", show_default="poisson")
    ] = None,
    rate: Annotated[float | None, typer.Option("--rate", help="Requests a second (burst: while calm).")] = None,
    burst_rate: Annotated[
        str | None,
        typer.Option("--burst-rate", help="Rate in the burst: 12, or 6x the calm one.", show_default="6x"),
    ] = None,
    duration: Annotated[str | None, typer.Option("--duration", help="60s; for a burst 30s,120s,120s.")] = None,
    prompt_tokens: Annotated[int | None, typer.Option("--prompt-tokens", help="Tokens of every prompt.")] = None,
    output_tokens: Annotated[int | None, typer.Option("--output-tokens", help="Tokens of every answer.")] = None,
    trace: Annotated[Path | None, typer.Option("--trace", metavar="FILE", help=TRACE_HELP)] = None,
    times: Times = 1,
    crowd: Crowd = None,
    start: From = "0s",
    span: Span = None,
    seed: Annotated[int, typer.Option("--seed", help="The same seed offers the same load.")] = 0,
    target: Annotated[list[str] | None, typer.Option("--target", help="Promise, like ttft_p95=500ms.")] = None,
    limit: Annotated[str, typer.Option("--limit", help="Longest time for one request.")] = "120s",
    out: Annotated[Path | None, typer.Option("--out", help="Write the report to this file as JSON.")] = None,
    state: State = DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Without --file and --url, measure the run in --state, with its key and its service's promise."""
    options = BenchOptions(profile, rate, burst_rate, duration, prompt_tokens, output_tokens)
    try:
        limit_s = seconds(limit)
    except ValueError as error:
        raise InvalidInput("limit", str(error)) from None
    shape, arrivals = _shape(options, trace, replay_of(times, crowd, start, span), seed)
    load = Load(shape, seed, tuple(parse_target(text) for text in target or ()), limit_s, arrivals)
    _check_writable(out)
    if file is None and url is None:
        read_record(state)
    typer.echo(f"offering load for {brief(load.profile.duration)}; the report follows", err=True)
    report = asyncio.run(_until_interrupted(measure(Where(file, state.absolute(), url, key, model), load)))
    document = json.dumps(asdict(report), indent=1, ensure_ascii=False)
    if as_json:
        typer.echo(document)
    else:
        Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH).print(render(report))
    if out is not None:
        out.write_text(document + "\n")
    if report.verdict == "void":
        raise typer.Exit(1)


def _shape(options: BenchOptions, trace: Path | None, replay: Replay, seed: int) -> tuple[Profile, tuple[Arrival, ...]]:
    """The load as options or a trace describe it; raises InvalidInput if both do."""
    if trace is None:
        if replay != Replay():
            raise InvalidInput("--trace", "is missing; --times, --crowd, --from and --span say how a trace is played")
        return profile_of(options), ()
    if options != BenchOptions():
        raise InvalidInput("--trace", "has arrivals and lengths of its own; leave --profile and its options out")
    profile, arrivals = trace_profile(trace.name, read_trace(trace), replay, seed)
    return profile, tuple(arrivals)


async def _until_interrupted(run: Coroutine[Any, Any, Report]) -> Report:
    """The run, or exit status 130 after everything that was started has ended."""
    task = asyncio.ensure_future(run)

    def cancel() -> None:
        task.cancel()

    try:
        with interrupts(cancel, cancel):
            return await task
    except asyncio.CancelledError:
        typer.echo("interrupted; there is no report", err=True)
        raise typer.Exit(INTERRUPTED) from None


def _check_writable(out: Path | None) -> None:
    """Refuse a path before the run, not after it."""
    try:
        if out is not None:
            out.touch()
    except OSError as error:
        raise InvalidInput("out", f"{out} cannot be written: {error.strerror}; name another file") from None


async def measure(where: Where, load: Load, clock: Clock | None = None) -> Report:
    """Run once against the stack of `where`. Raises PacelineError if it cannot begin."""
    clock = clock or SystemClock()
    if where.url is not None:
        if where.file is not None:
            raise InvalidInput("url", "goes without --file; name one of them")
        if not (where.url and where.key and where.model):
            raise InvalidInput("url", "needs --key and --model beside it")
        client = Client(BenchTarget(where.url, where.key, where.model), clock, load.limit_s)
        return await execute(_run(load, where.url, where.model, load.targets, clock), client, clock)
    async with AsyncExitStack() as stack:
        state = await stack.enter_async_context(temporary_stack(where.file)) if where.file else where.state
        attached = await attach(state, where.model, clock)
        stack.push_async_callback(attached.cluster.close)
        return await _measure_local(attached, replace(where, state=state), load, clock)


async def _measure_local(attached: Attached, where: Where, load: Load, clock: Clock) -> Report:
    model, url = where.model or attached.service.model.served_name, attached.record.endpoint
    client = Client(BenchTarget(url, where.key or attached.key, model), clock, load.limit_s)
    service = attached.service
    pools = [ScaleTarget(ObjectKey.parse(service.key), pool.name) for pool in service.pools]
    watch = Watch(attached.cluster, pools, clock, scrape)
    observer = Observer(watch, partial(decisions_since, where.state / LEDGER, service.key))
    promised = service.classes[RequestClass.INTERACTIVE].targets  # the default class of requests
    return await execute(_run(load, url, model, load.targets or promised, clock), client, clock, observer)


def _run(load: Load, url: str, model: str, targets: Sequence[objects.Target], clock: Clock) -> Run:
    return Run(rfc3339(clock.utc()), url, model, load.profile, load.seed, tuple(targets), load.arrivals)


LEAD_S = 0.5


class Watcher(Protocol):
    async def begin(self, start: float) -> None: ...

    async def end(self) -> BenchObservation: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Observer:
    """A watcher, and a function for the decisions since a wall time (Unix seconds)."""

    watch: Watcher
    decisions: Callable[[float], Decisions | None]


async def execute(run: Run, client: Client, clock: Clock, observer: Observer | None = None) -> Report:
    """Carry out a run and report on it; raises Unreachable if the first request is not answered."""
    writer = Writer(run.seed)
    try:
        cost = await learn(client, run.seed)

        def prepare(arrival: Arrival) -> bytes:
            words, blocks = cost.words(arrival.prompt_tokens), arrival.blocks
            text = writer.shared_text(words, blocks, cost.block_words) if blocks else writer.text(words)
            return client.prepare(text, arrival.output_tokens)

        start, began = clock.monotonic() + LEAD_S, clock.utc().timestamp() + LEAD_S
        if observer is not None:
            await observer.watch.begin(start)
        arrivals = run.arrivals or schedule(run.profile, run.seed)
        samples = await OpenLoop(prepare, client.send, clock).run(arrivals, start)
        await clock.sleep(max(start + run.profile.duration - clock.monotonic(), 0.0))
        seen = BenchObservation()
        if observer is not None:
            seen = replace(await observer.watch.end(), decisions=observer.decisions(began))
        return judge(run, samples, seen)
    finally:
        if observer is not None:
            await observer.watch.close()


async def learn(client: Client, seed: int) -> Calibration:
    """Send two short questions and compute a prompt's cost from their `usage`."""
    writer = Writer(~seed)
    counts = []
    for words in (1, 1 + PROBE_WORDS):
        request = client.prepare(writer.text(words), 1)
        sample = await client.send(Arrival(0, 0.0, "probe", 0, 1), request)
        if sample.ending is not Ending.OK or sample.usage is None:
            raise Unreachable(f"the first request ended {sample.ending}: {sample.detail}")
        counts.append(sample.usage.prompt_tokens)
    return calibrate(*counts)
