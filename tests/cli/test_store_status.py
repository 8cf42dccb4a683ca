from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from paceline_local.apiserver.store import apply_status, merged_status


def applied(*steps: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    parts: dict[str, Any] = {}
    for manager, status in steps:
        parts = apply_status(parts, status, manager)
    return merged_status(parts)


def condition(kind: str, status: str = "True") -> dict[str, str]:
    return {"type": kind, "status": status}


def test_managers_write_side_by_side() -> None:
    whole = applied(("operator", {"workload": {"summary": "1/1"}}), ("autoscaler", {"scaling": {"desired": 1}}))
    assert whole == {"workload": {"summary": "1/1"}, "scaling": {"desired": 1}}


def test_an_apply_replaces_what_the_same_manager_said_before() -> None:
    assert applied(("a", {"x": 1, "deep": {"y": 2, "z": 3}}), ("a", {"deep": {"y": 4}})) == {"deep": {"y": 4}}


def test_a_field_goes_to_the_one_who_wrote_it_last_and_goes_with_it() -> None:
    assert applied(("a", {"x": 1, "y": 1}), ("b", {"x": 2})) == {"x": 2, "y": 1}
    assert applied(("a", {"x": 1, "y": 1}), ("b", {"x": 2}), ("b", {})) == {"y": 1}


def test_conditions_are_shared_by_type() -> None:
    whole = applied(
        ("operator", {"conditions": [condition("Ready"), condition("Accepted")]}),
        ("autoscaler", {"conditions": [condition("SLOMet")]}),
        ("operator", {"conditions": [condition("Ready", "False")]}),
    )
    assert sorted((c["type"], c["status"]) for c in whole["conditions"]) == [("Ready", "False"), ("SLOMet", "True")]


def test_a_condition_taken_over_stands_once() -> None:
    whole = applied(("a", {"conditions": [condition("Ready")]}), ("b", {"conditions": [condition("Ready", "False")]}))
    assert whole["conditions"] == [condition("Ready", "False")]


def test_other_lists_are_replaced_whole() -> None:
    assert applied(("a", {"slo": [1, 2, 3]}), ("a", {"slo": [4]})) == {"slo": [4]}


leaves = st.integers() | st.text(max_size=3)
trees = st.recursive(
    st.dictionaries(st.sampled_from("abcd"), leaves, max_size=3),
    lambda inner: st.dictionaries(st.sampled_from("abcd"), leaves | inner, max_size=3),
    max_leaves=8,
)


def fields(tree: dict[str, Any], path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    out: dict[tuple[str, ...], Any] = {}
    for name, value in tree.items():
        out |= fields(value, (*path, name)) if isinstance(value, dict) and value else {(*path, name): value}
    return out


@given(st.lists(st.tuples(st.sampled_from("xyz"), trees), min_size=1, max_size=8))
def test_what_was_applied_last_is_what_readers_see(steps: list[tuple[str, dict[str, Any]]]) -> None:
    whole = fields(applied(*steps))
    for path, value in fields(steps[-1][1]).items():
        if value != {}:
            assert whole[path] == value


@given(st.lists(st.tuples(st.sampled_from("xyz"), trees), max_size=8), trees)
def test_applying_twice_is_applying_once(steps: list[tuple[str, dict[str, Any]]], status: dict[str, Any]) -> None:
    assert applied(*steps, ("x", status), ("x", status)) == applied(*steps, ("x", status))
