"""Shared by the two commands `what-if`, once they have asked their autoscaler: join what is known, run, and show."""

import sys
from collections.abc import Mapping
from io import StringIO
from typing import Any, Final

import typer
from rich.console import Console

from paceline_autoscaler.output.scale_writer import stored_of
from paceline_cli.commands.kube import Format, written
from paceline_cli.what_if.question import Question
from paceline_cli.what_if.runs import answer
from paceline_cli.what_if.table import document, render
from paceline_core.errors import InvalidInput, PacelineError
from paceline_core.objects import InferenceService, read, resolve
from paceline_core.units import brief
from paceline_simulator.what_if import PastService, ServiceVariant, WhatIf

PLAIN_WIDTH: Final = 120


def show(question: Question, manifest: Mapping[str, Any], learned: Mapping[str, Any], output: Format | None) -> str:
    """The answer as text. Raises PacelineError with what is missing before anything is run."""
    asked = what_if_of(question, manifest, learned)
    asked.check()
    typer.echo(f"{asked.as_is.service.key}: {question.sentence}, on {brief(asked.known_s)} of its work", err=True)
    found = answer(asked, question.limit_s)
    price = learned.get("dollars_per_hour", {}).get(asked.as_is.service.pools[0].name) or None
    if output:
        return written(document(question, asked, found, price), output) + "\n"
    text = StringIO()
    width = None if sys.stdout.isatty() else PLAIN_WIDTH
    Console(file=text, width=width, force_terminal=sys.stdout.isatty()).print(render(question, asked, found, price))
    return text.getvalue()


def what_if_of(question: Question, manifest: Mapping[str, Any], learned: Mapping[str, Any]) -> WhatIf:
    """The question about a service. `learned` is the answer of `/debug/learned`. Raises PacelineError."""
    as_is = resolve(read(InferenceService, manifest))
    judged = question.judged(as_is)
    would_be = resolve(read(InferenceService, question.changed(manifest, judged)))
    if question.factor == 1 and would_be.classes[judged].targets == as_is.classes[judged].targets:
        option, fix = ("--slo", "another limit") if question.slo else ("--rps", "a factor other than 1x")
        raise InvalidInput(option, f"nothing is changed, the service is so already; write {fix}")
    try:
        stored = stored_of(learned["stored"])
    except (ValueError, KeyError) as error:
        raise PacelineError(
            f"the autoscaler is of another release, and its answer is not understood: {error}"
        ) from None
    history = stored.knowledge.history(as_is.pools[0].role)
    past = PastService(stored.state.learned, history, stored.lengths, float(learned["now"]))
    variants = ServiceVariant(as_is), ServiceVariant(would_be, question.factor)
    return WhatIf(*variants, past, question.since_s, judged)
