"""Structured output: grammars and schemas that are short to send and long to read."""

from collections.abc import Iterator
from typing import Any

from benchmarks.attacks.case import Case, Kind, Model, Parts
from benchmarks.attacks.wire import CHAT, fields, post, schema, schema_text

REAL = Model.REAL
_PRIMES = (999_983, 999_979, 999_961, 999_959)
_LITTER = {f"p{number}": {"type": "string"} for number in range(2000)}


def kinds() -> Iterator[Kind]:
    """All of them."""
    yield _kind("grammar: multipleOf", "a state for each remainder", _multiples())
    yield _kind("grammar: several multipleOf", "the product of their remainders", _products())
    yield _kind("grammar: repeated expressions", "an expression written out many times over", _regexes())
    yield _kind("grammar: expressions in a schema", "the same behind pattern and patternProperties", _patterns())
    yield _kind("grammar: ambiguous Lark", "ever more ways to read a text", _ambiguous())
    yield _kind("grammar: Lark around others", "schemas and expressions within a grammar", _within_lark())
    yield _kind("grammar: long enumerations", "thousands of texts", _enumerations())
    yield _kind("grammar: references", "definitions that name each other", _references())
    yield _kind("grammar: branches", "alternatives within alternatives", _branches())
    yield _kind("grammar: counts", "so many items, characters or properties", _counts())
    yield _kind("grammar: properties", "thousands of properties in any order", _properties())
    yield _kind("grammar: bounds of numbers", "digits of limits", _numbers())
    yield _kind("grammar: schemas of tools", "the same as parameters of tools", _tools())


def _kind(name: str, aim: str, bodies: Iterator[tuple[str, Parts]]) -> Kind:
    return Kind(name, aim, tuple(Case(case, post(CHAT, body), model=REAL) for case, body in bodies))


def _multiples() -> Iterator[tuple[str, Parts]]:
    for value in (4_999_999, 999_983, 65_537, 2**31 - 1, 1e-7, 1e300):
        yield f"multipleOf {value:g}", schema({"type": "integer" if value > 1 else "number", "multipleOf": value})


def _products() -> Iterator[tuple[str, Parts]]:
    for count in (2, 3, 4):
        several = [{"type": "integer", "multipleOf": prime} for prime in _PRIMES[:count]]
        yield f"{count} primes", schema({"allOf": several})
    yield "small primes", schema({"allOf": [{"type": "integer", "multipleOf": n} for n in (7, 11, 13, 17, 19, 23, 29)]})
    yield "in items", schema({"type": "array", "items": {"allOf": [{"multipleOf": 9973}, {"multipleOf": 9967}]}})


_EXPRESSIONS = {
    "(a{1000}){1000}": "(a{1000}){1000}",
    "three levels": "((a{100}){100}){100}",
    "a?{5000}a{5000}": "(a?){5000}a{5000}",
    "any of 300 of 300": "(.{1,300}){1,300}",
    "60,000 characters": "[ab]{60000}",
    "unicode classes": r"(\p{L}\p{N}){3000}",
    "nested stars": "((((a*)*)*)*)*b",
    "look behind by alternation": "(.*a.{20}|.*b.{20}|.*c.{20})",
}


def _regexes() -> Iterator[tuple[str, Parts]]:
    for name, expression in _EXPRESSIONS.items():
        yield name, fields(REAL, structured_outputs={"regex": f"$NUMBER{expression}"})


def _patterns() -> Iterator[tuple[str, Parts]]:
    for name, expression in list(_EXPRESSIONS.items())[:4]:
        yield f"pattern {name}", schema({"type": "string", "pattern": f"^{expression}$"})
    many = {f"^{letter}{{1,900}}$": {"type": "string"} for letter in "abcdefgh"}
    yield "patternProperties", schema({"type": "object", "patternProperties": many})
    yield "pattern and length", schema({"type": "string", "pattern": "^(ab|cd){1,500}$", "minLength": 499})


_AMBIGUOUS = {
    "s: s s s": 'start: s\ns: s s s | s s | "a" |',
    "two ways a letter": 'start: (a | b)*\na: "x" a? | "x"\nb: "x" b? | "x"',
    "left and right": 'start: e\ne: e "+" e | e "*" e | e e | "1" | ""',
    "512 rules": "start: "
    + " | ".join(f"r{n}" for n in range(512))
    + "".join(f'\nr{n}: "a" r{n} |' for n in range(512)),
    "empty loops": "start: a\na: b | a a\nb: c |\nc: a |",
}


def _ambiguous() -> Iterator[tuple[str, Parts]]:
    for name, text in _AMBIGUOUS.items():
        yield name, _lark(text)


def _lark(text: str) -> Parts:
    return fields(REAL, structured_outputs={"grammar": text + "\n// $NUMBER\n"}, ignore_eos=True)


def _within_lark() -> Iterator[tuple[str, Parts]]:
    texts = {
        "%json": 'start: %json {"type": "integer", "multipleOf": 4999999}',
        "%json twice": "start: a b\n" + "".join(f'{n}: %json {{"multipleOf": 999983}}\n' for n in "ab"),
        "terminal": "start: A\nA: /(a{1000}){1000}/",
        "terminals multiplied": "start: A\nA: B{1000}\nB: C{1000}\nC: /[a-z]/",
        "%regex": 'start: %regex {"substring_chars": "' + "ab" * 8000 + '"}',
        "brackets": "start: " + "(" * 3000 + '"a"' + ")" * 3000,
        "range of rules": 'start: a{1,1000000}\na: "x" | "y"',
        "and, not": "start: A\nA: /(.*a.{18})/ & ~/(.*b.{18})/",
    }
    for name, text in texts.items():
        yield name, _lark(text)


def _enumerations() -> Iterator[tuple[str, Parts]]:
    yield "enum of 5,000", schema({"enum": [f"value {number}" for number in range(5000)]})
    yield "enum of long texts", schema({"enum": ["x" * 600 + str(number) for number in range(100)]})
    yield "const of 60,000", schema({"const": "y" * 60_000})
    yield "const nested", schema({"const": [[{"a": [1] * 200}] * 20] * 2})
    yield "choice of 256", fields(REAL, guided_choice=[f"$NUMBER{'z' * 200}{number}" for number in range(256)])
    yield "enums in properties", schema({"properties": {f"p{n}": {"enum": list(range(200))} for n in range(40)}})


def _references() -> Iterator[tuple[str, Parts]]:
    chain = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(900)} | {"d900": {"type": "null"}}
    yield "chain of 900", schema({"$defs": chain, "$ref": "#/$defs/d0"})
    doubled = {f"d{n}": {"type": "array", "prefixItems": [{"$ref": f"#/$defs/d{n + 1}"}] * 8} for n in range(30)}
    yield "eightfold 30 deep", schema({"$defs": doubled | {"d30": {"type": "null"}}, "$ref": "#/$defs/d0"})
    both = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(25)}
    yield "allOf doubled 25 times", schema({"$defs": both | {"d25": {"type": "integer"}}, "$ref": "#/$defs/d0"})
    yield "itself", schema({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"})
    yield (
        "tree",
        schema({"type": "object", "properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}}, "required": ["a", "b"]}),
    )


def _branches() -> Iterator[tuple[str, Parts]]:
    yield "anyOf 2,000", schema({"anyOf": [{"properties": {f"k{n}": {"type": "integer"}}} for n in range(1500)]})
    yield "oneOf in oneOf", schema(_nested("oneOf", 8))
    yield "anyOf in anyOf", schema(_nested("anyOf", 8))
    pairs = [{"anyOf": [{"required": [f"a{n}"]}, {"required": [f"b{n}"]}]} for n in range(20)]
    names = {f"{side}{n}": {"type": "integer"} for n in range(20) for side in "ab"}
    yield "allOf of anyOf", schema({"type": "object", "properties": names, "allOf": pairs})
    yield "30 levels of items", schema_text(('"items": {', 60), ("}", 60))


def _nested(word: str, depth: int) -> dict[str, Any]:
    inner: dict[str, Any] = {"type": "integer"}
    for level in range(depth):
        inner = {word: [{"properties": {f"k{level}": inner}}, {"type": "array", "items": inner}]}
    return inner


def _counts() -> Iterator[tuple[str, Parts]]:
    for least in (100_000, 10**9):
        yield f"minItems {least:,}", schema({"type": "array", "items": {"type": "integer"}, "minItems": least})
    yield "minLength 10^6", schema({"type": "string", "minLength": 1_000_000})
    yield "maxLength 65,000", schema({"type": "string", "minLength": 30_000, "maxLength": 65_000})
    inner = {
        "type": "array",
        "minItems": 300,
        "maxItems": 600,
        "items": {"type": "array", "minItems": 300, "items": {}},
    }
    yield "minItems in minItems", schema(inner)
    yield "prefixItems 4,000", schema({"prefixItems": [{"type": "integer"}] * 4000})
    yield "minProperties", schema({"type": "object", "minProperties": 5000, "maxProperties": 10**6})


def _properties() -> Iterator[tuple[str, Parts]]:
    yield "2,000 that may be there", schema({"type": "object", "properties": _LITTER})
    yield "2,000 that must", schema({"type": "object", "properties": _LITTER, "required": list(_LITTER)[:800]})
    deep: dict[str, Any] = {
        "properties": {f"p{n}": {"properties": {f"q{m}": {} for m in range(40)}} for n in range(40)}
    }
    yield "40 times 40", schema(deep)
    yield "names of 60,000", schema({"properties": {"n" * 60_000: {"type": "integer"}}})


def _numbers() -> Iterator[tuple[str, Parts]]:
    yield "from 0 to 10^300", schema({"type": "integer", "minimum": 0, "maximum": 10**300})
    yield (
        "17 digits",
        schema({"type": "number", "minimum": 0.12345678901234567, "exclusiveMaximum": 98765.432109876543}),
    )
    yield "10^5 digits", schema_text(f'"type": "integer", "minimum": {"9" * 60_000}')
    yield (
        "500 ranges",
        schema({"anyOf": [{"type": "integer", "minimum": n, "maximum": n + 7} for n in range(0, 5000, 10)]}),
    )


def _tools() -> Iterator[tuple[str, Parts]]:
    bombs: dict[str, dict[str, Any]] = {
        "multipleOf": {"type": "object", "properties": {"a": {"type": "integer", "multipleOf": 4_999_999}}},
        "allOf": {"properties": {"a": {"allOf": [{"multipleOf": prime} for prime in _PRIMES]}}},
        "pattern": {"properties": {"a": {"type": "string", "pattern": "^(a{1000}){1000}$"}}},
        "minItems": {"properties": {"a": {"type": "array", "minItems": 10**8, "items": {}}}},
        "properties": {"properties": _LITTER},
    }
    for name, parameters in bombs.items():
        for choice in ("required", "auto") if name in ("multipleOf", "pattern") else ("required",):
            yield f"{name}, {choice}", fields(REAL, tools=[_tool("f", parameters)], tool_choice=choice)
    small = {"properties": {"a": {"type": "integer", "multipleOf": 9973}}}
    yield "128 tools", fields(REAL, tools=[_tool(f"f{n}", small) for n in range(128)], tool_choice="required")


def _tool(name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    described = {"title": "$NUMBER", "type": "object"} | parameters
    return {"type": "function", "function": {"name": name, "parameters": described}}
