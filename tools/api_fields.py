"""`python -m tools.api_fields` writes the tables of docs/api.md from the code's; `--check` exits 1 where they drifted.

A table stands between the comments `<!-- table: NAME -->` and `<!-- end of NAME -->`; the rest of the page is written
by hand.
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from paceline_workers.server.openai.fields import FIELDS, Api, FieldRoute, RequestField
from paceline_workers.server.openai.fields.field import (
    CHAT,
    COMPLETIONS,
    COUNT_TOKENS,
    COUNTED,
    DETOKENIZE,
    EMBEDDINGS,
    GENERATING,
    MESSAGES,
    RERANK,
    RESPONSES,
    SCORE,
    TOKENIZE,
)
from paceline_workers.server.openai.fields.table import PATHS

PAGE = "docs/api.md"
_ON: Mapping[tuple[FieldRoute, ...], str] = {
    CHAT: "chat",
    COMPLETIONS: "completions",
    MESSAGES: "messages",
    COUNT_TOKENS: "count",
}


def field_table(routes: Sequence[FieldRoute]) -> str:
    """The fields of these routes; the second column names the route of those that not all of them have."""
    rows = [row for row in FIELDS if set(row.routes) & set(routes)]
    several = len(routes) > 1
    head = ("Field", *(["On"] if several else []), "OpenAI", "vLLM", "Here", "Meaning")
    return _table(head, (_field(row, routes, several=several) for row in rows))


def path_table() -> str:
    """The routes."""
    head = ("Route", "OpenAI", "vLLM", "Worker", "Gateway", "Meaning, or what takes its place")
    rows = (
        (f"`{row.path}`", *_known(row.apis), _yes(known=row.worker), _yes(known=row.gateway), row.note) for row in PATHS
    )
    return _table(head, rows)


TABLES: Mapping[str, Callable[[], str]] = {
    "generating fields": lambda: field_table(GENERATING),
    "embeddings fields": lambda: field_table(EMBEDDINGS),
    "score fields": lambda: field_table(SCORE),
    "rerank fields": lambda: field_table(RERANK),
    "responses fields": lambda: field_table(RESPONSES),
    "messages fields": lambda: field_table(COUNTED),
    "tokenize fields": lambda: field_table(TOKENIZE),
    "detokenize fields": lambda: field_table(DETOKENIZE),
    "routes": path_table,
}


def written(page: str) -> str:
    """The page with its tables as the code has them. Raises ValueError if it lacks one."""
    for name, table in TABLES.items():
        begin, end = f"<!-- table: {name} -->\n", f"<!-- end of {name} -->"
        before, found, rest = page.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise ValueError(f"{PAGE} lacks the comments {begin.strip()} and {end}")
        page = f"{before}{begin}{table()}\n{end}{after}"
    return page


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.api_fields", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the page drifted")
    parser.add_argument("--root", type=Path, default=Path(), help="the repository's root (default: here)")
    options = parser.parse_args(arguments)
    path = options.root / PAGE
    page = path.read_text(encoding="utf-8")
    if (wanted := written(page)) == page:
        return 0
    if options.check:
        sys.stdout.write(f"{PAGE} drifted: run `make generate`\n")
        return 1
    path.write_text(wanted, encoding="utf-8")
    sys.stdout.write(f"wrote {PAGE}\n")
    return 0


def _field(row: RequestField, routes: Sequence[FieldRoute], *, several: bool) -> tuple[str, ...]:
    on = "" if set(routes) <= set(row.routes) else _ON[row.routes]
    note = f"{row.note}; {row.passing} may be sent" if row.neutral else row.note
    return (f"`{row.name}`", *([on] if several else []), *_known(row.apis), str(row.support), note)


def _known(apis: Sequence[Api]) -> tuple[str, str]:
    vllm = "older" if Api.OLD_VLLM in apis else _yes(known=Api.VLLM in apis)
    return _yes(known=Api.OPENAI in apis), vllm


def _yes(*, known: bool) -> str:
    return "yes" if known else "–"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
