"""`paceline quote`: what a service's promise costs if it is kept for 90, 95, 99 or 99.9 % of the requests."""

import json
from dataclasses import replace

import typer

from paceline_cli.commands import command_app
from paceline_cli.commands.local.state import AsJson
from paceline_cli.plan.command import (
    SLO,
    Answers,
    Cached,
    Class,
    Devices,
    File,
    Model,
    Prompt,
    Rate,
    Service,
    Spread,
    Where,
    load_of,
    subject_of,
)
from paceline_cli.plan.document import load_document
from paceline_cli.plan.inputs import one_quantile
from paceline_cli.plan.quotes import quote_documents, quote_lines
from paceline_cli.plan.table import load_line, model_line
from paceline_core.errors import PacelineError
from paceline_core.registry import RequestClass
from paceline_planner.hardware import replica_price
from paceline_planner.lengths import LengthDistribution
from paceline_planner.plan import plan
from paceline_planner.quote import quotes
from paceline_planner.splits import MOST_DEVICES

app = command_app()


@app.command(help="Price a promise at 90, 95, 99 and 99.9 % of the requests.")
def quote(  # noqa: PLR0913, PLR0917 - one argument for each option
    rps: Rate,
    prompt: Prompt,
    output: Answers,
    file: File = None,
    model: Model = "",
    slo: SLO = "",
    accelerator: Where = None,
    service: Service = None,
    request_class: Class = RequestClass.INTERACTIVE,
    length_cv: Spread = 1.0,
    cached: Cached = 0.0,
    devices: Devices = MOST_DEVICES,
    as_json: AsJson = False,
) -> None:
    subject = subject_of(file, model, service, request_class, slo, accelerator)
    assert subject.promise is not None
    asked = one_quantile(subject.promise)
    load = load_of(subject, rps, LengthDistribution(prompt, output, length_cv, length_cv, cached), asked)
    found = plan(subject.shape, subject.accelerators, load, subject.caps, devices)
    best = found.chosen or found.nearest
    if best is None:
        raise PacelineError(f"{subject.name} fits on none of these accelerators; `paceline plan` says what is missing")
    price = replica_price(best.replica.accelerator, best.replica.split.devices)
    rows = quotes(lambda asked: best.replica.pool(replace(load, promise=asked)), load.promise, rps, price)
    if as_json:
        document = {"v": 1, "load": load_document(load), "of": best.replica.name, "quotes": quote_documents(rows)}
        typer.echo(json.dumps(document, indent=1))
        return
    typer.echo("\n".join((model_line(found.shape), load_line(load), "", *quote_lines(rows, best.replica.name))))
