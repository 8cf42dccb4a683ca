"""`kubectl paceline quote`: what a running service's promise costs, by the lengths and speeds that were observed.

They are in the last decision of the autoscaler's ledger (the rights of `why`): lengths of answered requests, arrivals,
and the step time that the workers fitted, so that no data sheet is involved. Options replace what is observed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from math import fsum
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter, ValidationError

from paceline_autoscaler.state import LearnedState, PoolSpeed
from paceline_autoscaler.types import Observation, PoolSpec
from paceline_cli.commands import command_app
from paceline_cli.commands.decisions import decision_query
from paceline_cli.commands.kube import Output, written
from paceline_cli.kube.ledger import read_ledger
from paceline_cli.kube.services import named, service
from paceline_cli.kube.session import SYSTEM, Context, Kubeconfig, KubeTarget, Namespace, System, place, run
from paceline_cli.plan.document import load_document
from paceline_cli.plan.inputs import SLO_EXAMPLE, one_quantile, promise, promise_of
from paceline_cli.plan.quotes import quote_documents, quote_lines
from paceline_cli.plan.table import load_line
from paceline_core.errors import InvalidInput, PacelineError
from paceline_core.kube import ObjectKey
from paceline_core.kube.client.client import KubeClient
from paceline_core.objects import InferenceService, ResolvedService, read, resolve
from paceline_core.registry import RequestClass
from paceline_planner.candidates import PlannedLoad
from paceline_planner.goodput import PlannedSpeed, PoolModel
from paceline_planner.lengths import LengthDistribution
from paceline_planner.quote import quotes

app = command_app()
_LEARNED, _OBSERVED = TypeAdapter(LearnedState), TypeAdapter(Observation)


@dataclass(frozen=True, slots=True)
class Observed:
    """What the last decision rested on."""

    learned: LearnedState
    observation: Observation

    @property
    def rate(self) -> float:
        """Requests a second of the longest windows."""
        longest = [cls.flows[-1] for cls in self.observation.demand.classes if cls.flows]
        return fsum(flow.arrivals / flow.seconds for flow in longest if flow.seconds > 0)

    def lengths(self, prompt: int | None, output: int | None) -> LengthDistribution:
        """Of answered requests, with other means where they are given. Raises InvalidInput if none are known."""
        if self.learned.completed is not None and self.learned.completed.requests > 0:
            found = LengthDistribution.of(self.learned.completed)
        elif prompt and output:
            found = LengthDistribution(prompt, output)
        else:
            raise InvalidInput("--prompt", "no request was answered lately; give --prompt and --osl in tokens")
        return replace(found, prompt=prompt or found.prompt, output=output or found.output)

    def cheapest(self) -> tuple[PoolSpec, PoolSpeed]:
        """The cheapest pool that has reported its speed. Raises PacelineError if none has."""
        speeds = {speed.pool: speed for speed in self.learned.speeds}
        pools = [pool for pool in self.observation.goal.pools if pool.name in speeds and pool.role == "both"]
        if not pools:
            raise PacelineError(
                "no worker that prefills and decodes has reported its step time yet; `paceline quote` plans without"
            )
        best = min(pools, key=lambda pool: pool.dollars_per_hour)
        return best, speeds[best.name]


@app.command(help="Price NAME's promise at 90, 95, 99 and 99.9 % of the requests.")
def quote(  # noqa: PLR0913, PLR0917 - one argument for each option
    name: Annotated[str, typer.Argument(help="Name, or namespace/name.")],
    slo: Annotated[str, typer.Option("--slo", metavar="TARGETS", help=f"Another promise, e.g. {SLO_EXAMPLE}.")] = "",
    rps: Annotated[float | None, typer.Option("--rps", min=1e-6, help="Requests a second; default: observed.")] = None,
    prompt: Annotated[
        int | None, typer.Option("--prompt", "--isl", min=1, help="Prompt tokens; default: observed.")
    ] = None,
    tokens: Annotated[int | None, typer.Option("--osl", min=1, help="Output tokens; default: observed.")] = None,
    request_class: Annotated[
        RequestClass, typer.Option("--class", help="Class whose promise is priced.")
    ] = RequestClass.INTERACTIVE,
    output: Output = None,
    namespace: Namespace = "",
    system: System = SYSTEM,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    where = place(kubeconfig, context, namespace, system)
    key = named(name, where)
    found, observed = run(where, lambda api: _observed(api, where, key))
    asked = promise(slo) if slo else promise_of(found.classes[request_class].targets)
    if asked is None:
        raise InvalidInput(
            "--slo", f"class {request_class} of {key} promises neither ttft nor tpot; write {SLO_EXAMPLE}"
        )
    pool, speed = observed.cheapest()
    asked = one_quantile(asked)
    load = PlannedLoad(rps or observed.rate, observed.lengths(prompt, tokens), asked)
    if not load.rate:
        raise InvalidInput("--rps", "no request arrives at the moment; give the requests a second")
    planned = PlannedSpeed(speed.step_time, speed.slots, speed.kv_tokens)
    step_tokens = observed.observation.goal.step_tokens
    price = Decimal(str(pool.dollars_per_hour)) if pool.dollars_per_hour else None
    rows = quotes(lambda one: PoolModel(planned, step_tokens, load.lengths, one), asked, load.rate, price)
    if output:
        document = {
            "service": str(key),
            "pool": pool.name,
            "load": load_document(load),
            "quotes": quote_documents(rows),
        }
        typer.echo(written(document, output))
        return
    typer.echo("\n".join((f"{key}: {load_line(load)}", *quote_lines(rows, f"pool {pool.name}"))))


async def _observed(api: KubeClient, where: KubeTarget, key: ObjectKey) -> tuple[ResolvedService, Observed]:
    manifest = await service(api, key)
    answer = await read_ledger(api, where.system, decision_query(str(key), 1, "", inputs=True))
    if not answer.entries:
        raise PacelineError(f"what was observed of {key} cannot be read: {answer.source}")
    return resolve(read(InferenceService, manifest)), _read(answer.entries[0])


def _read(entry: Mapping[str, Any]) -> Observed:
    try:
        learned = _LEARNED.validate_python(entry.get("state", {}).get("learned", {}))
        return Observed(learned, _OBSERVED.validate_python(entry.get("observation")))
    except ValidationError:
        raise PacelineError("the autoscaler is of another version: its ledger cannot be read here") from None
