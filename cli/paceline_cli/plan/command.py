"""`paceline plan`: whether a model fits, how many replicas carry a load within its promise, and what they cost.

Nothing runs: the planner's roofline and its goodput formula answer, so the answer comes at once and errs by as much as
they do (docs/planner.md). Exit status 1 if nothing keeps the promise.
"""

import json
from dataclasses import replace
from enum import StrEnum
from math import isfinite
from pathlib import Path
from typing import Annotated

import typer
import yaml

from paceline_cli.commands import command_app
from paceline_cli.commands.chosen_service import chosen_service
from paceline_cli.plan.document import plan_document
from paceline_cli.plan.inputs import SLO_EXAMPLE, Subject, accelerators, of_model, of_service, promise
from paceline_cli.plan.manifest import manifest, unserved
from paceline_cli.plan.table import plan_lines
from paceline_core.errors import InvalidInput
from paceline_core.registry import RequestClass
from paceline_planner.candidates import PlannedLoad
from paceline_planner.goodput import LatencyPromise
from paceline_planner.hardware import Dtype
from paceline_planner.lengths import LengthDistribution
from paceline_planner.plan import plan as planned
from paceline_planner.shapes import QUANTIZATIONS
from paceline_planner.splits import MOST_DEVICES

app = command_app()


class PlanFormat(StrEnum):
    TABLE = "table"
    JSON = "json"
    MANIFEST = "manifest"


class WeightFormat(StrEnum):
    FP8 = "fp8"
    INT8 = "int8"
    INT4 = "int4"


class KVFormat(StrEnum):
    FP8 = "fp8"
    INT8 = "int8"


File = Annotated[Path | None, typer.Option("--file", "-f", metavar="FILE", help="YAML file with the service.")]
Service = Annotated[str | None, typer.Option("--service", help="Service to plan, where FILE has several.")]
Model = Annotated[str, typer.Option("--model", metavar="DIR", help="Folder with a config.json, or a known model.")]
SLO = Annotated[str, typer.Option("--slo", metavar="TARGETS", help=f"Promise, e.g. {SLO_EXAMPLE}; else FILE's.")]
Rate = Annotated[float, typer.Option("--rps", metavar="N", min=1e-6, help="Requests a second.")]
Prompt = Annotated[int, typer.Option("--prompt", "--isl", metavar="TOKENS", min=1, help="Mean prompt tokens.")]
Answers = Annotated[int, typer.Option("--output", "--osl", metavar="TOKENS", min=1, help="Mean output tokens.")]
Spread = Annotated[
    float,
    typer.Option("--length-cv", metavar="CV", min=0.0, max=10.0, help="Standard deviation of lengths over their mean."),
]
Cached = Annotated[
    float,
    typer.Option("--cached", metavar="SHARE", min=0.0, max=0.99, help="Share of prompt tokens found in the cache."),
]
Where = Annotated[
    str | None,
    typer.Option("--accelerator", metavar="LIST", help="With commas, e.g. h100,l4; default: FILE's, or all GPUs."),
]
Weights = Annotated[WeightFormat | None, typer.Option("--quantization", help="Plan with the weights in this format.")]
KVCache = Annotated[KVFormat | None, typer.Option("--kv-dtype", help="Plan with the KV cache in this type.")]
Slots = Annotated[
    int | None, typer.Option("--max-seqs", min=1, max=1024, help="Sequences at once; default FILE's, or 256.")
]
Devices = Annotated[int, typer.Option("--devices", min=1, max=8, help="Most devices of one replica.")]
Class = Annotated[RequestClass, typer.Option("--class", help="Class whose promise is planned, also in the manifest.")]


@app.command(help="Plan a service: does it fit, how many replicas, on what, at which latency and cost.")
def plan(  # noqa: PLR0913, PLR0917 - one argument for each option
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
    quantization: Weights = None,
    kv_dtype: KVCache = None,
    max_seqs: Slots = None,
    devices: Devices = MOST_DEVICES,
    form: Annotated[PlanFormat, typer.Option("--format", "-o", help="How to print it.")] = PlanFormat.TABLE,
) -> None:
    subject = subject_of(file, model, service, request_class, slo, accelerator)
    shape, caps = subject.shape, subject.caps
    if quantization is not None:
        shape = replace(shape, quantization=QUANTIZATIONS[quantization])
    if kv_dtype is not None:
        shape = replace(shape, kv_dtype=Dtype(kv_dtype))
    if max_seqs is not None:
        caps = replace(caps, sequences=max_seqs, step_tokens=max(caps.step_tokens, max_seqs))
    assert subject.promise is not None
    lengths = LengthDistribution(prompt, output, length_cv, length_cv, cached)
    load = load_of(subject, rps, lengths, subject.promise)
    found = planned(shape, subject.accelerators, load, caps, devices)
    if form is PlanFormat.JSON:
        typer.echo(json.dumps(plan_document(found), indent=1))
    elif form is PlanFormat.TABLE:
        typer.echo("\n".join(plan_lines(found)))
    elif found.chosen is not None:
        made = manifest(found.chosen, subject, model, request_class)
        for gap in unserved(made, shape):
            typer.echo(f"note: not served by this version: {gap}", err=True)
        typer.echo(yaml.safe_dump(made, sort_keys=False).rstrip())
    else:
        typer.echo("nothing keeps this promise; -o table shows why, and the nearest one", err=True)
    if found.chosen is None:
        raise typer.Exit(1)


def load_of(subject: Subject, rps: float, lengths: LengthDistribution, promised: LatencyPromise) -> PlannedLoad:
    """Raises InvalidInput for a rate without an end, and for a mean request that the context does not hold."""
    if not isfinite(rps):
        raise InvalidInput("--rps", f"{rps} is no rate; write the requests a second, for example 20")
    if lengths.prompt + lengths.output > subject.context:
        sizes = f"{lengths.prompt:,} prompt and {lengths.output:,} output tokens"
        more = ", or raise spec.engine.maxModelLen" if subject.context < subject.shape.max_context else ""
        fix = f"lower --prompt or --output{more}"
        raise InvalidInput("--prompt", f"{sizes} are over the context of {subject.context:,} tokens; {fix}")
    return PlannedLoad(rps, replace(lengths, context=subject.context), promised)


def subject_of(  # noqa: PLR0913, PLR0917 - one argument for each option
    file: Path | None, model: str, service: str | None, request_class: RequestClass, slo: str, accelerator: str | None
) -> Subject:
    """The subject that the options name, with its promise. Raises InvalidInput."""
    if (file is None) == (not model):
        problem = "give --file or --model, not both" if model else "one of --file and --model is needed"
        raise InvalidInput("--file", problem)
    if file is None and service is not None:
        raise InvalidInput("--service", "names a service of a file; give it with --file")
    if file is not None:
        chosen = chosen_service(file, service, problems=lambda _: ())
        subject, known = of_service(chosen, request_class), chosen.accelerators
        if accelerator is not None:
            subject = replace(subject, accelerators=accelerators(accelerator, known))
    else:
        subject = of_model(model)
        if accelerator is not None:
            subject = replace(subject, accelerators=accelerators(accelerator))
    if slo:
        return replace(subject, promise=promise(slo))
    if subject.promise is None:
        where = f"class {request_class} of {subject.name} promises neither ttft nor tpot" if file else "is missing"
        raise InvalidInput("--slo", f"{where}; write {SLO_EXAMPLE}, for example")
    return subject
