"""`paceline simulate`: what scaling policies would make of a trace, with production code on a virtual clock.

One study from its files to its end: read, run what is missing, show. Rows are written as their runs end; an interrupt
keeps them, and the table and the report are made of those that are there.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from paceline_cli.commands import command_app
from paceline_cli.commands.chosen_service import chosen_service
from paceline_cli.commands.local.state import AsJson
from paceline_cli.commands.trace_options import TRACE_HELP, Crowd, From, Span, Times, duration, replay_of
from paceline_cli.simulate.runs import simulate_runs
from paceline_cli.simulate.table import document, render
from paceline_core.errors import InvalidInput
from paceline_core.manifests import ParsedManifest
from paceline_core.objects import AcceleratorProfile, InferenceService, resolve
from paceline_core.registry import RequestClass
from paceline_core.units import counted
from paceline_local.preflight import accelerators
from paceline_simulator.comparison import Comparison, gpu_hours
from paceline_simulator.policies import NAMES
from paceline_simulator.report_page import report_page
from paceline_simulator.service_engine import SimulatedPools, simulated_pools
from paceline_simulator.study import WARMUP_S, Study
from paceline_simulator.study_rows import StudyRow, append_row, read_rows
from paceline_simulator.traces import TraceRequest, read_trace

DAY_S = 86_400.0
PLAIN_WIDTH = 120
INTERRUPTED = 130

app = command_app()


@app.command(help="Replay a trace under scaling policies on a virtual clock; compare attainment and GPU-hours.")
def simulate(  # noqa: PLR0913, PLR0917 - one argument for each option
    file: Annotated[Path, typer.Option("--file", "-f", metavar="FILE", help="YAML file of manifests.")],
    trace: Annotated[Path, typer.Option("--trace", metavar="FILE", help=TRACE_HELP)],
    policy: Annotated[
        str, typer.Option("--policy", metavar="LIST", help=f"With commas; NAME:N sets a target: {', '.join(NAMES)}.")
    ] = "slo,hpa-queue",
    service: Annotated[
        str | None, typer.Option("--service", help="Service to simulate, where FILE has several.")
    ] = None,
    request_class: Annotated[
        RequestClass, typer.Option("--class", help="Class of all requests.")
    ] = RequestClass.INTERACTIVE,
    lead: Annotated[
        str | None, typer.Option("--lead", metavar="TIME", help="Time from order to ready, e.g. 180s; else as planned.")
    ] = None,
    times: Times = 1,
    crowd: Crowd = None,
    start: From = "0s",
    span: Span = None,
    warmup: Annotated[
        str | None,
        typer.Option("--warmup", metavar="TIME", help="Neither scored nor paid; default 10m, at most a quarter."),
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, metavar="N", help="Runs of each policy.")] = 3,
    out: Annotated[Path | None, typer.Option("--out", help="Add a JSON line for each run; skip those in it.")] = None,
    report: Annotated[Path | None, typer.Option("--report", help="Write the result as a page of HTML.")] = None,
    as_json: AsJson = False,
) -> None:
    lead_s = None if lead is None else duration("--lead", lead)
    replay = replay_of(times, crowd, start, span)
    warmup_s = WARMUP_S if warmup is None else duration("--warmup", warmup)
    chosen = chosen_service(file, service)
    manifest = _Manifest(chosen.manifest, chosen.beside)
    requests = read_trace(trace)
    inputs = f"{manifest.digest} {sha256(trace.read_bytes()).hexdigest()} {lead_s}"
    study = Study(manifest.pools(lead_s), requests, replay, request_class, warmup_s, inputs)
    policies = list(dict.fromkeys(name.strip() for name in policy.split(",") if name.strip()))
    _check(study, policies, warmup)
    _check_writable({"--out": out, "--report": report}, {"--file": file, "--trace": trace})
    typer.echo(_intention(study, trace) + _pause(requests), err=True)
    runs = [(name, seed) for name in policies for seed in study.seeds(name, seeds)]
    rows, whole = _rows(study, runs, out)
    if not rows:
        typer.echo("interrupted; no run has ended", err=True)
        raise typer.Exit(INTERRUPTED)
    comparison = Comparison.of(study.pools.service.key, study.promise, runs, rows)
    if as_json:
        typer.echo(json.dumps(document(comparison), indent=1))
    else:
        Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH).print(render(comparison))
    if report is not None:
        report.write_text(report_page(comparison, _intention(study, trace)))
    if not whole:
        typer.echo(f"interrupted; this is of {counted(len(rows), 'run')} of {len(runs)}", err=True)
        raise typer.Exit(INTERRUPTED)


@dataclass(frozen=True, slots=True)
class _Manifest:
    """The service to simulate, and the manifests beside it."""

    chosen: ParsedManifest
    beside: Sequence[ParsedManifest]

    @property
    def digest(self) -> str:
        """Names the service and the accelerators that are defined beside it."""
        profiles = [one.document for one in self.beside if isinstance(one.found, AcceleratorProfile)]
        return sha256(json.dumps([self.chosen.document, *profiles], sort_keys=True).encode()).hexdigest()

    def pools(self, lead_s: float | None) -> SimulatedPools:
        """Raises InvalidInput with the document and the field that a simulation lacks."""
        assert isinstance(self.chosen.found, InferenceService)
        try:
            return simulated_pools(resolve(self.chosen.found), accelerators(self.beside).get, lead_s)
        except InvalidInput as error:
            raise InvalidInput(f"{self.chosen.context}: {error.field}", error.message) from None


def _check(study: Study, policies: Sequence[str], warmup: str | None) -> None:
    """Refuse before the first run what would fail within one."""
    if not policies:
        raise InvalidInput("--policy", "names no policy; write slo, for example")
    for name in policies:
        study.check(name)
    assert study.promise
    start, _ = study.score
    if warmup is not None and start < study.warmup_s:
        most = f"{start:.0f} s is a quarter of what is played; give less, or play more of the trace"
        raise InvalidInput("--warmup", f"is {warmup}, but at most {most}")


def _check_writable(outputs: Mapping[str, Path | None], inputs: Mapping[str, Path]) -> None:
    """Refuse a path before the runs, not after them; what is read or written already is not written over."""
    taken = {path.resolve(): option for option, path in inputs.items()}
    for option, path in outputs.items():
        if path is None:
            continue
        if (other := taken.setdefault(path.resolve(), option)) != option:
            raise InvalidInput(option, f"{path} is the file of {other}; name another file")
        new = not path.exists()
        try:
            path.open("ab").close()
        except OSError as error:
            raise InvalidInput(option, f"{path} cannot be written: {error.strerror}; name another file") from None
        if new:
            path.unlink()


def _intention(study: Study, trace: Path) -> str:
    """The study in a line: its trace, and what of it is played and scored."""
    replay, (warm, end) = study.replay, study.score
    crowd = "" if replay.crowd_s is None else f" as a crowd within {replay.crowd_s:g} s"
    copies = "" if replay.times == 1 else f", {replay.times} copies{crowd}"
    without = f"; {study.left_out} requests over {study.max_model_len} tokens are left out" if study.left_out else ""
    return f"{trace.name} from {replay.start_s:g} s for {end:.0f} s{copies}, scored after {warm:.0f} s{without}"


def _pause(requests: Sequence[TraceRequest]) -> str:
    """A note on a pause of a day or more: times in another unit, or one of another epoch."""
    pause, at = max(((after.at - before.at, before.at) for before, after in pairwise(requests)), default=(0.0, 0.0))
    if pause < DAY_S:
        return ""
    return f"\nnote: nothing arrives for {pause / DAY_S:.0f} days after {at:.0f} s; check that times are seconds"


def _rows(study: Study, runs: Sequence[tuple[str, int]], out: Path | None) -> tuple[list[StudyRow], bool]:
    """The rows of the runs, old ones from `out`; and whether they are all there."""
    wanted = {study.digest(*run): run for run in runs}
    known = {row.digest: row for row in (read_rows(out) if out else ()) if row.digest in wanted}
    rows = list(known.values())
    missing = [run for digest, run in wanted.items() if digest not in known]
    if rows:
        typer.echo(f"{counted(len(rows), 'run')} of {len(runs)} found in {out}", err=True)
    with _progress(len(missing)) as (tell, moved):

        def done(row: StudyRow) -> None:
            rows.append(row)
            if out is not None:
                append_row(out, row)
            tell(row)

        try:
            if missing:
                simulate_runs(study, missing, done, moved)
        except KeyboardInterrupt:
            return rows, False
    return rows, True


@contextmanager
def _progress(total: int) -> Iterator[tuple[Callable[[StudyRow], None], Callable[[float], None]]]:
    """Callbacks for an ended run and for the number of runs done: a bar on a terminal, else a line for each run."""
    if not sys.stderr.isatty():
        yield lambda row: typer.echo(_row_line(row), err=True), lambda _: None
        return
    columns = (
        TextColumn("simulating"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        tell = partial(bar.update, task)
        yield lambda row: tell(description=_row_line(row)), lambda runs: tell(completed=runs)


def _row_line(row: StudyRow) -> str:
    return f"{row.policy} seed {row.seed}: {row.attainment:.2%} in time, {gpu_hours(row.gpu_hours)}"
