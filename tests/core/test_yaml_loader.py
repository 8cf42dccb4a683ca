"""YAML is read as kubectl reads it, or refused; never otherwise in silence."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.yaml_words import READ, REFUSED

from paceline_core.errors import InvalidInput
from paceline_core.manifests import load_documents


def read(text: str) -> Any:
    (document,) = load_documents(text, "f")
    return document


def test_bare_words_are_what_kubectl_reads_them_as() -> None:
    wrong = {word: found for word, value in READ.items() if not same(found := read(f"v: {word}")["v"], value)}
    assert wrong == {}


def same(one: Any, other: Any) -> bool:
    """Large numbers as the doubles that kubectl makes of them; a whole one is never a float, nor a flag a number."""
    big = isinstance(one, int) and abs(one) >= 2**53
    return type(one) is type(other) and (float(one) == float(other) if big else one == other)


def test_what_kubectl_refuses_is_refused() -> None:
    for word in REFUSED:
        with pytest.raises(InvalidInput, match=r"at line 2: .* cannot be read as what it seems to be; write it in"):
            read(f"a: 1\nv: {word}")


def test_a_key_that_is_no_text_is_refused_where_kubectl_would_rename_it() -> None:
    for key in ("yes", "y", "on", "1", "1.5", "1e3", "~"):
        with pytest.raises(InvalidInput, match=f"the key {key} is not text; write it in quotes"):
            read(f"{key}: 1")


def test_a_key_that_only_looks_like_a_time_or_a_date_is_text() -> None:
    assert read("{1:30: a, 2026-01-31: b, '1': c}") == {"1:30": "a", "2026-01-31": "b", "1": "c"}


def test_a_merge_fills_in_what_stands_behind_it_and_may_not_overwrite_what_stands_before() -> None:
    assert read("a: &a {x: 1, y2: 2}\nv: {<<: *a, x: 3}")["v"] == {"x": 3, "y2": 2}
    assert read("a: &a {x: 1}\nb: &b {x: 2, z: 4}\nv: {w: 0, <<: [*a, *b]}")["v"] == {"w": 0, "x": 1, "z": 4}
    for merged in ("*a", "[*a]", "{<<: *a}"):
        with pytest.raises(InvalidInput, match="line 2: << stands behind x, which it would overwrite; write << first"):
            read(f"a: &a {{x: 1}}\nv: {{x: 3, <<: {merged}}}")


@given(st.text("+-._0123456789eExXbBoOnyinfaNI:", max_size=9))
def test_a_quoted_word_is_text_and_a_bare_one_never_fails_but_in_words_of_ours(word: str) -> None:
    assert read(f"v: '{word}'") == {"v": word}
    try:
        found = read(f"v: {word}")
    except InvalidInput:
        return
    assert not isinstance(found, dict) or isinstance(found.get("v"), (str, int, float, bool, type(None), dict, list))
