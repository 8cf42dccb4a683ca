"""What of a body is counted on its bytes, against what a parser makes of it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.every import cases

from paceline_core.errors import RequestError
from paceline_core.json_limits import CONTAINERS, LEVELS, STRINGS, VALUES, JsonShape, check_shape, shape_of

TRICKY = st.text(alphabet='[]{},:"\\/a\n\x07é€😀u0', max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TRICKY,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TRICKY, inner, max_size=5),
    max_leaves=40,
)


def made(value: Any) -> JsonShape:
    """The shape of a parsed value."""
    if isinstance(value, str):
        return JsonShape(0, 0, 1, 0)
    if not isinstance(value, dict | list):
        return JsonShape(0, 0, 0, 0)
    inner = [made(each) for each in (value.values() if isinstance(value, dict) else value)]
    keys = len(value) if isinstance(value, dict) else 0
    return JsonShape(
        1 + sum(each.containers for each in inner),
        1 + max((each.levels for each in inner), default=0),
        keys + sum(each.strings for each in inner),
        max(0, len(value) - 1) + sum(each.commas for each in inner),
    )


@given(JSON, st.booleans(), st.sampled_from([None, 1]))
def test_the_count_on_the_bytes_is_what_a_parser_makes(value: Any, ascii_only: bool, indent: int | None) -> None:
    assert shape_of(json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()) == made(value)


@given(st.text(alphabet='[]{},"\\ a', max_size=60))
def test_any_bytes_get_a_count(text: str) -> None:
    shape = shape_of(text.encode())
    assert 0 <= shape.levels <= LEVELS + 1
    assert shape.containers <= text.count("[") + text.count("{")


@pytest.mark.parametrize(
    ("most", "more", "refusal"),
    [
        (b"[" * LEVELS + b"]" * LEVELS, b"[" * (LEVELS + 1) + b"]" * (LEVELS + 1), "deeper than 128 levels"),
        (b'{"a":' * LEVELS + b"1", b'{"a":' * (LEVELS + 1), "deeper than 128 levels"),
        (b"[" + b"{}," * (CONTAINERS - 2) + b"{}]", b"[" + b"{}," * CONTAINERS + b"{}]", "32768 objects and lists"),
        (b"[" + b'"",' * (STRINGS - 1) + b'""]', b"[" + b'"",' * STRINGS + b'""]', "131072 strings, keys included"),
        (b"[" + b"1," * VALUES + b"1]", b"[" + b"1," * VALUES + b"1,1]", "1048576 values"),
    ],
    ids=["lists", "objects", "containers", "strings", "values"],
)
def test_a_body_at_a_bound_passes_and_one_beyond_it_is_refused(most: bytes, more: bytes, refusal: str) -> None:
    check_shape(most)
    with pytest.raises(RequestError, match=refusal):
        check_shape(more)


def test_what_stands_in_a_prompt_counts_as_one_string() -> None:
    code = 'if (a[0] == "\\\\") { b = {{1, [2]}, "x"}; }\n' * 50_000
    body = json.dumps({"prompt": code}).encode()
    check_shape(body)
    assert shape_of(body) == JsonShape(1, 1, 2, 0)


@cases("byte", [b"[", b"{", b"]", b'"', b"\\", b",", b'\\"', b"[]", b"{}", b'["', b'{"":'])
def test_eight_million_bytes_of_one_kind_are_counted_or_refused_before_they_are_walked(byte: bytes) -> None:
    body = byte * ((8 << 20) // len(byte))
    try:
        check_shape(body)
    except RequestError:
        return
    shape = shape_of(body)
    assert shape.containers <= CONTAINERS
    assert shape.strings <= STRINGS
    assert shape.commas <= VALUES
