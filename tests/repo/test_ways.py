"""The tracing of the ways: what is recorded of a process, and how a walk is counted."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent

import pytest
from tools.ways import recorder
from tools.ways.shown import compared, described
from tools.ways.trace import Function, Seen, Window, named, read
from tools.ways.walk import Return, Stop, figures, joined, order, returns

PROGRAM = """
    import os, subprocess, sys, threading, time
    from demo.paceline_demo.other import inner

    def outer():
        return [inner(number) for number in range(2)]

    def in_thread():
        pass

    def in_child():
        os._exit(0)

    outer()
    thread = threading.Thread(target=in_thread)
    thread.start()
    thread.join()
    if not (child := os.fork()):
        in_child()
    os.waitpid(child, 0)
    subprocess.run([sys.executable, "-S", "-c", ""])
    os.kill(os.getpid(), 9)
"""


def stop(name: str, caller: str = "") -> Stop:
    """`a.f` is the function f of the file a."""
    file, _, function = name.partition(".")
    return Stop(Function(file, function), caller)


def seen(*names: str) -> Seen:
    """Functions called by the event loop, in this order."""
    return {stop(name).function: {None: at} for at, name in enumerate(names)}


def walk(*names: str) -> list[Stop]:
    return [stop(name) for name in names]


def test_a_return_is_a_change_to_a_file_that_was_left_before() -> None:
    found = walk("a.f", "a.g", "b.f", "a.h", "c.f", "c.g", "b.g")
    assert returns(found) == [Return("b", Function("a", "h")), Return("c", Function("b", "g"))]
    counted = figures(found)
    assert (counted.stops, counted.files, counted.changes, counted.returns) == (7, 3, 4, 2)


def test_an_entry_comes_from_another_file_or_from_the_event_loop() -> None:
    assert [stop("a.f", caller).entry for caller in ("", "b", "a")] == [True, True, False]


def test_a_step_comes_from_another_file_and_leads_to_another() -> None:
    first, inside, second, leaf = (Function(*name.split(".")) for name in ("a.f", "a.g", "b.f", "c.f"))
    observation: Seen = {first: {None: 0}, inside: {first: 1}, second: {inside: 2}, leaf: {second: 3}}
    found = order([observation], set(observation))
    assert [each.function for each in found if each.entry] == [first, second, leaf]
    assert [each.function for each in found if each.step] == [first, second]


def test_a_function_that_was_read_in_one_process_is_no_stop_in_the_next() -> None:
    assert joined([walk("a.f", "core.f"), walk("b.f", "core.f", "core.g")]) == walk("a.f", "core.f", "b.f", "core.g")


def test_the_order_is_that_of_most_observations() -> None:
    observations = [seen("a.f", "b.f", "c.f"), seen("b.f", "a.f", "c.f"), seen("a.f", "c.f", "b.f")]
    assert order(observations, set(observations[0])) == walk("a.f", "b.f", "c.f")


def test_a_call_from_beside_the_way_gives_no_place() -> None:
    first, second, timer = (Function(file, "f") for file in "abt")
    observation: Seen = {timer: {None: 0}, second: {timer: 1, first: 3}, first: {None: 2}}
    assert order([observation], {first, second}) == [Stop(first, "", leads=True), Stop(second, "a")]


def test_a_killed_process_leaves_its_calls_without_those_of_forked_children(tmp_path: Path) -> None:
    package, calls = tmp_path / "demo" / "paceline_demo", tmp_path / "calls"
    for folder in (package, calls):
        folder.mkdir(parents=True)
    (package / "__main__.py").write_text(dedent(PROGRAM))
    (package / "other.py").write_text("def inner(number):\n    return number\n")
    shutil.copy(recorder.__file__, tmp_path / "sitecustomize.py")
    traced = {"PYTHONPATH": str(tmp_path), recorder.FOLDER: str(calls), recorder.ROOT: f"{tmp_path}/"}
    began = time.monotonic_ns()
    command = [sys.executable, "-m", "demo.paceline_demo"]
    assert subprocess.run(command, cwd=tmp_path, env={**os.environ, **traced}, check=False).returncode == -9
    process = named(read(calls), "demo.paceline_demo")
    found = process.seen(Window(began, time.monotonic_ns()))
    main, other = "demo/paceline_demo/__main__.py", "demo/paceline_demo/other.py"
    outer, inner = Function(main, "outer"), Function(other, "inner")
    assert [function for function in found if "<module>" not in function.name] == [
        outer,
        inner,
        Function(main, "in_thread"),
    ]
    assert set(found[inner]) == {outer}, "a comprehension is part of its function"
    assert process.counted(Window(began, time.monotonic_ns()))[inner] == 2
    assert [path.read_text().count("-S -c") for path in calls.glob("*.starts")] == [1]


def test_two_states_are_compared_by_the_share_that_is_left(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_text("line\n" * 10)
    before = described(tmp_path, [*walk("a.f", "b.f", "a.g", "c.f"), Stop(Function("b", "g"), "c", leads=True)])
    after = described(tmp_path, walk("a.f", "b.f", "a.g"))
    rows, _ = compared({"chat": before, "scale": before}, {"chat": after})
    assert {row.name: (row.value, row.peer, row.passed) for row in rows if row.bar} == {
        "chat: files": (2, 3, True),
        "chat: returns": (1, 2, False),
        "chat, steps alone: files": (0, 1, True),
        "chat, steps alone: returns": (0, 0, True),
    }


def test_a_checkout_without_a_recorded_call_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no call"):
        described(tmp_path, [])
