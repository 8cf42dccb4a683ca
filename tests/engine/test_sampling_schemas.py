"""Schemas as pydantic and OpenAPI write them: followed, with notes left aside, or refused by the keyword's place."""

import datetime as dt
import decimal
import enum
import ipaddress
import json
import pathlib
import uuid
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

import pytest
from llguidance import LLMatcher, LLTokenizer
from pydantic import (
    UUID4,
    AnyUrl,
    AwareDatetime,
    Base64Str,
    BaseModel,
    ByteSize,
    ConfigDict,
    Field,
    HttpUrl,
    IPvAnyAddress,
    Json,
    PastDate,
    PostgresDsn,
    SecretStr,
    TypeAdapter,
    conint,
    conlist,
    constr,
)

from paceline_workers.engine.sampling import grammar
from paceline_workers.engine.sampling.grammar import check
from paceline_workers.engine.sampling.json_schema import FORMATS


class Color(enum.Enum):
    RED = "red"
    DARK = "dark blue (2+)"


class Sub(BaseModel):
    """A description."""

    x: int = Field(title="X", description="d", examples=[1], json_schema_extra={"format": "int32"})
    y: str | None = None


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


class Tree(BaseModel):
    value: int
    children: list["Tree"] = []


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")
    a: int


class Pair(NamedTuple):
    a: int
    b: str


FITTING: dict[str, tuple[Any, Any, Any]] = {
    "int": (int, 5, "5"),
    "float": (float, 1.5, "a"),
    "anything": (Any, {"a": [1]}, None),
    "optional": (int | None, None, "a"),
    "union": (int | str, "a", [1]),
    "literal": (Literal["a", 1], 1, 2),
    "enum": (Color, "dark blue (2+)", "green"),
    "list": (list[int], [1, 2], ["a"]),
    "tuple": (tuple[int, str], [1, "a"], ["a", 1]),
    "named tuple": (Pair, [1, "a"], [1]),
    "sequence": (Sequence[int], [], [None]),
    "dict": (dict[str, int], {"k": 1}, {"k": "a"}),
    "dict of numbers": (dict[int, str], {"1": "a"}, {"1": 1}),
    "dict of an enum": (dict[Color, int], {"red": 1, "dark blue (2+)": 2}, {"green": 1}),
    "dict of literals": (dict[Literal["a"], int], {"a": 1}, {"b": 1}),
    "dict of short names": (dict[constr(min_length=1, max_length=2), int], {"ab": 1}, {"abc": 1}),  # type: ignore[misc]
    "dict of a pattern": (dict[constr(pattern="^a+$"), int], {"aa": 1}, {"aa": "b"}),  # type: ignore[misc]
    "not empty dict": (Annotated[dict[str, int], Field(min_length=1)], {"a": 1}, {}),
    "model": (Sub, {"x": 1, "y": None}, {"x": "a"}),
    "models": (list[Sub], [{"x": 1}], [{}]),
    "discriminated": (Annotated[Cat | Dog, Field(discriminator="kind")], {"kind": "dog", "name": "a"}, {"kind": "cow"}),
    "recursive": (Tree, {"value": 1, "children": [{"value": 2, "children": []}]}, {"value": 1, "children": [1]}),
    "strict": (Strict, {"a": 1}, {"a": 1, "b": 2}),
    "datetime": (dt.datetime, "2026-01-02T03:04:05Z", "yesterday"),
    "aware": (AwareDatetime, "2026-01-02T03:04:05+02:00", ""),
    "date": (dt.date, "2026-01-02", "2026-13-02"),
    "past date": (PastDate, "2026-01-02", "02.01.2026"),
    "time": (dt.time, "03:04:05Z", "3 h"),
    "timedelta": (dt.timedelta, "P1DT2H", "2 h"),
    "uuid": (uuid.UUID, "12345678-1234-4234-8234-123456789abc", "1234"),
    "uuid4": (UUID4, "12345678-1234-4234-8234-123456789abc", 5),
    "decimal": (decimal.Decimal, "1.50", [1]),
    "http url": (HttpUrl, "https://example.org/a?b=c", "no url"),
    "url": (AnyUrl, "ftp://example.org", "no url"),
    "database url": (PostgresDsn, "postgres://a@b/c", ""),
    "ipv4": (ipaddress.IPv4Address, "127.0.0.1", "300.0.0.1"),
    "ipv6": (ipaddress.IPv6Address, "::1", "127.0.0.1"),
    "network": (ipaddress.IPv4Network, "10.0.0.0/8", 8),
    "address": (IPvAnyAddress, "127.0.0.1", 8),
    "path": (pathlib.Path, "/etc/hosts", 8),
    "bytes": (bytes, "abc", 8),
    "base64": (Base64Str, "YQ==", 8),
    "secret": (SecretStr, "abc", 8),
    "json": (Json[list[int]], "[1]", [1]),
    "size": (ByteSize, 5, "a b"),
    "bounded": (conint(gt=0, le=10), 10, 11),
    "multiple": (conint(multiple_of=5), 15, 14),
    "one to three": (conlist(int, min_length=1, max_length=3), [1, 2, 3], [1, 2, 3, 4]),
    "a set of one": (Annotated[set[int], Field(max_length=1)], [1], [1, 2]),
    "lower case": (constr(min_length=1, max_length=5, pattern="^[a-z]+$"), "abc", "ABC"),
}
EMAIL = {"type": "string", "format": "email"}
WRITTEN: list[tuple[dict[str, Any], Any, Any]] = [
    (EMAIL, "a@example.org", "a"),
    ({"type": "string", "pattern": r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$"}, "-1.50", "-."),
    ({"type": "integer", "format": "int32", "nullable": True, "readOnly": True}, 1, "a"),
    ({"type": "string", "contentEncoding": "base64", "contentMediaType": "text/plain", "format": "byte"}, "YQ==", 1),
    ({"enum": [{"format": "byte", "uniqueItems": False}]}, {"format": "byte", "uniqueItems": False}, {}),
    ({"const": {"propertyNames": {"const": "a"}}}, {"propertyNames": {"const": "a"}}, {"a": 1}),
    ({"properties": {"format": {"const": "byte"}}, "required": ["format"]}, {"format": "byte"}, {"format": "bit"}),
    ({"type": "array", "uniqueItems": False, "items": {"type": "integer"}}, [1, 1], ["a"]),
]


def fits(schema: dict[str, Any], value: Any) -> bool:
    matcher = LLMatcher(LLTokenizer("byte"), grammar.source(f"json_schema:{json.dumps(schema)}"))
    return bool(matcher.consume_tokens(list(json.dumps(value).encode())) and matcher.is_accepting())


def test_what_pydantic_writes_is_followed() -> None:
    schemas = {name: (TypeAdapter(kind).json_schema(), good, bad) for name, (kind, good, bad) in FITTING.items()}
    schemas |= {str(schema): (schema, good, bad) for schema, good, bad in WRITTEN}
    for name, (schema, good, bad) in schemas.items():
        assert check(f"json_schema:{json.dumps(schema)}") == "", name
        assert fits(schema, good), name
        assert name == "anything" or not fits(schema, bad), name


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        (TypeAdapter(set[int]).json_schema(), "uniqueItems"),
        ({"properties": {"f": TypeAdapter(frozenset[str]).json_schema()}}, "properties.f.uniqueItems"),
        ({"anyOf": [{"type": "null"}, {"not": {"type": "string"}}]}, "anyOf[1].not"),
        ({"properties": {"not": {"type": "object", "dependentRequired": {"a": ["b"]}}}}, "properties.not.dependentReq"),
        ({"type": "object", "propertyNames": {"not": {"const": "a"}}}, "propertyNames"),
    ],
)
def test_a_keyword_that_no_grammar_holds_is_named_with_its_place(schema: dict[str, Any], place: str) -> None:
    assert f"no grammar can hold `{place}" in check(f"json_schema:{json.dumps(schema)}")


def test_a_look_ahead_within_a_pattern_is_refused_in_words() -> None:
    assert "look-around" in check('json_schema:{"type": "string", "pattern": "^(?=a)b"}')


def test_the_formats_that_are_followed_are_those_of_the_library() -> None:
    known = {"iri", "idn-email", "json-pointer", "regex", "uri-reference", "path", "binary", *FORMATS}
    for name in known:
        text = LLMatcher.grammar_from_json_schema(json.dumps({"type": "string", "format": name}))
        assert LLMatcher.validate_grammar_with_warnings(text)[0] is (name not in FORMATS), name
