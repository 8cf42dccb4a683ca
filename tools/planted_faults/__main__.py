"""Plant faults and count which the tests catch.

`draw` writes a seeded list of faults. `where` says for each where it stands in a checkout whose names and places may
have changed. `run` plants one after another, runs the related tests and writes what became of it; a second call goes
on where the first ended. `compare` lists what one checkout's tests caught and another's did not.
"""

import argparse
import json
import signal
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Final

from tools.planted_faults.faults import (
    Fault,
    Found,
    NotFoundError,
    Tree,
    as_rows,
    draw,
    find,
    read_faults,
    read_table,
    write_json,
)
from tools.planted_faults.trial import Limits, Outcome, Trials

HERE: Final = Path(__file__).parent


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code."""
    options = _parser().parse_args(arguments)
    return int(options.command(options))


def _draw(options: argparse.Namespace) -> int:
    faults = draw(Tree(options.root), options.seed, options.count, options.without)
    write_json(options.faults, as_rows(faults))
    _say(f"{len(faults)} faults: {_counted(fault.package for fault in faults)}")
    return 0


def _where(options: argparse.Namespace) -> int:
    found = _found(read_faults(options.faults), options)
    for fault, place in found:
        moved = f"-> {place.path} {place.function}" if isinstance(place, Found) else f"NOT APPLICABLE: {place}"
        _say(f"{fault.id}\t{fault.path} {fault.function}\t{moved}")
    return 0


def _run(options: argparse.Namespace) -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    limits = Limits(options.seconds, options.quick, options.kernels, options.real)
    trials = Trials(options.root, options.results.with_suffix(".restore"), limits)
    done = _read_results(options.results) if options.results.exists() else {}
    for fault, place in _found(read_faults(options.faults), options):
        known = done.get(fault.id)
        if (known and known.result not in options.again) or (options.only and fault.id not in options.only):
            continue
        if isinstance(place, Found):
            outcome = trials.run(fault, place)
        else:
            outcome = Outcome(fault.id, "", "not applicable", note=place)
        done[fault.id] = outcome
        write_json(options.results, [asdict(done[name]) for name in sorted(done)])
        _say(f"{fault.id}\t{outcome.result}\t{outcome.seconds:.0f} s\t{outcome.test or outcome.note}")
    _say(_counted(outcome.result for outcome in done.values()))
    return 0


def _compare(options: argparse.Namespace) -> int:
    """Exit 1 if the second caught fewer of the faults that apply in both."""
    one, two = _read_results(options.before), _read_results(options.results)
    both = [name for name in one if name in two and "not applicable" not in {one[name].result, two[name].result}]
    caught = [{name for name in both if results[name].result == "caught"} for results in (one, two)]
    _say(f"{len(both)} faults apply in both; caught {len(caught[0])} before, {len(caught[1])} after")
    for fault in read_faults(options.faults):
        if fault.id in both and fault.id not in caught[1]:
            was, is_now = one[fault.id], two[fault.id]
            _say(f"{fault.id}\tbefore {was.result}, after {is_now.result}\t{is_now.place}")
            _say(f"\t{fault.mutation}: {fault.before}\t-> {fault.after}")
    return int(len(caught[1]) < len(caught[0]))


def _found(faults: Iterable[Fault], options: argparse.Namespace) -> list[tuple[Fault, Found | str]]:
    tree, table = Tree(options.root), read_table(options.table)
    found: list[tuple[Fault, Found | str]] = []
    for fault in faults:
        try:
            found.append((fault, find(fault, tree, table)))
        except NotFoundError as error:
            found.append((fault, str(error)))
    return found


def _read_results(path: Path) -> dict[str, Outcome]:
    return {row["fault"]: Outcome(**row) for row in json.loads(path.read_text(encoding="utf-8"))}


def _counted(words: Iterable[str]) -> str:
    return ", ".join(f"{number} {word}" for word, number in Counter(words).most_common())


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.planted_faults", description=__doc__)
    parser.add_argument("--faults", type=Path, default=HERE / "faults.json", help="the list of faults")
    parser.add_argument("--root", type=Path, default=Path(), help="the checkout, with its own .venv (default: here)")
    commands = parser.add_subparsers(required=True)
    drawn = commands.add_parser("draw", help="draw faults in this checkout")
    drawn.set_defaults(command=_draw)
    drawn.add_argument("--seed", type=int, default=16)
    drawn.add_argument("--count", type=int, default=72)
    drawn.add_argument("--without", nargs="*", default=[], help="patterns of paths that are not drawn from")
    placed = commands.add_parser("where", help="where each fault stands in this checkout")
    placed.set_defaults(command=_where)
    ran = commands.add_parser("run", help="plant each fault in this checkout and run the related tests")
    ran.set_defaults(command=_run)
    for part in (placed, ran):
        part.add_argument("--table", type=Path, default=HERE / "moved.tsv", help="functions that shape does not find")
    ran.add_argument("--results", type=Path, required=True, help="JSON; faults that it has are not run again")
    ran.add_argument("--again", nargs="*", default=[], help="results to run again, e.g. timeout")
    ran.add_argument("--only", nargs="*", default=[], help="ids of faults")
    ran.add_argument("--seconds", type=float, default=300.0, help="limit of one trial")
    ran.add_argument("--quick", type=int, default=60, help="test files of the quick layer at most")
    ran.add_argument("--kernels", type=int, default=12, help="of the kernels' layer")
    ran.add_argument("--real", type=int, default=10, help="of those that start processes")
    compared = commands.add_parser("compare", help="two results")
    compared.set_defaults(command=_compare)
    compared.add_argument("before", type=Path)
    compared.add_argument("results", type=Path)
    return parser


if __name__ == "__main__":
    sys.exit(main())
