"""What is believed of a request's headers, and of whom."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline_core.auth.internal_token import TokenClaims
from paceline_core.registry import RequestClass
from paceline_workers.server.http.caller import Caller, caller

HINTS = {
    "x-paceline-class": "batch",
    "x-paceline-tenant": "acme",
    "x-paceline-deadline-ms": "1500",
    "x-paceline-tpot-ms": "40",
    "x-paceline-max-tokens": "300",
}


def read(headers: dict[str, str], *, trusted: bool) -> Caller:
    return caller(
        {name.encode(): value.encode() for name, value in headers.items()},
        TokenClaims("gateway", "team/chat", 0) if trusted else None,
    )


def test_a_trusted_token_is_believed() -> None:
    known = read({**HINTS, "x-request-id": "r-1"}, trusted=True)
    told = Caller(
        "r-1",
        trusted=True,
        gateway=True,
        request_class=RequestClass.BATCH,
        tenant="acme",
        deadline_s=1.5,
        tpot_s=0.04,
        max_tokens=300,
    )
    assert known == told


def test_anybody_else_only_names_the_request() -> None:
    assert read({**HINTS, "x-request-id": "r-1"}, trusted=False) == Caller("r-1")


@pytest.mark.parametrize("name", ["", "a" * 65, "a b", "a\n", "é", "../x"])
def test_a_harmful_request_id_is_replaced(name: str) -> None:
    replaced = read({"x-request-id": name}, trusted=False).request_id
    assert replaced != name
    assert replaced.isalnum()


def test_an_unknown_class_is_interactive() -> None:
    assert read({"x-paceline-class": "royal"}, trusted=True).request_class is RequestClass.INTERACTIVE


@pytest.mark.parametrize(
    ("text", "seconds"), [("250", 0.25), ("0", 0.001), ("-5", 0.001), ("soon", 0.0), ("1.5", 0.0), ("9" * 40, 0.0)]
)
def test_a_deadline_is_what_remains(text: str, seconds: float) -> None:
    assert read({"x-paceline-deadline-ms": text}, trusted=True).deadline_s == seconds


@pytest.mark.parametrize(("text", "seed"), [("0", 0), ("12", 12), ("-1", None), ("", None), ("9" * 19, None)])
def test_a_gateways_seed_is_taken_and_nobody_elses(text: str, seed: int | None) -> None:
    assert read({"x-paceline-seed": text}, trusted=True).seed == seed
    assert read({"x-paceline-seed": text}, trusted=False).seed is None


def test_prefix_keys_are_taken_from_a_gateway_and_ignored_where_they_make_no_sense() -> None:
    text = f"2100;{'0' * 16},{'a' * 16}"
    known = read({"x-paceline-prefix": text}, trusted=True).prefix
    assert known is not None
    assert known.header() == text
    assert known.tokens(500) == [("0" * 16, 243), ("a" * 16, 487)]
    assert read({"x-paceline-prefix": text}, trusted=False).prefix is None
    for wrong in ("", "2100", f"2000;{'0' * 16},{'a' * 16}", "2100;xyz", f"2100;{'A' * 16}", f"-1;{'0' * 16}"):
        assert read({"x-paceline-prefix": wrong}, trusted=True).prefix is None


@pytest.mark.parametrize(("text", "size"), [("120", 120), ("0", -1), ("-1", -1), ("many", -1)])
def test_a_resumption_is_counted_in_bytes(text: str, size: int) -> None:
    assert read({"x-paceline-resume": text}, trusted=True).resume == size
    assert read({"x-paceline-resume": text}, trusted=False).resume == 0


@given(
    st.dictionaries(
        st.sampled_from([*HINTS, "x-request-id", "x-paceline-resume", "x-paceline-seed"]),
        st.text(st.characters(max_codepoint=255)),
    )
)
def test_no_header_breaks_the_reading(headers: dict[str, str]) -> None:
    pairs = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    assert caller(dict(pairs), TokenClaims("autoscaler", "team/chat", 0)).deadline_s >= 0
