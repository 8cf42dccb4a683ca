"""What the two commands `what-if` share once they have asked their autoscaler: run, and show.

A file of its own, so that neither command imports the other.
"""

import sys
from collections.abc import Mapping
from io import StringIO
from typing import Annotated, Any, Final

import typer
from rich.console import Console

from paceline_cli.commands.kube import Format, written
from paceline_cli.what_if.question import Question
from paceline_cli.what_if.runs import answer
from paceline_cli.what_if.table import document, render

SINCE: Final = "24h"
LIMIT: Final = "60s"
PLAIN_WIDTH: Final = 120
Name = Annotated[str, typer.Argument(help="Name, or namespace/name.")]


def show(question: Question, manifest: Mapping[str, Any], learned: Mapping[str, Any], output: Format | None) -> str:
    """The answer as text. Raises PacelineError with what is missing before anything is run."""
    asked = question.about(manifest, learned)
    asked.check()
    typer.echo(f"{asked.as_is.service.key}: {question.sentence}, on {asked.known_s / 3600:.1f} h of its work", err=True)
    found = answer(asked, question.limit_s)
    price = learned.get("dollars_per_hour", {}).get(asked.as_is.service.pools[0].name) or None
    if output:
        return written(document(question, asked, found, price), output) + "\n"
    text = StringIO()
    width = None if sys.stdout.isatty() else PLAIN_WIDTH
    Console(file=text, width=width, force_terminal=sys.stdout.isatty()).print(render(question, asked, found, price))
    return text.getvalue()
