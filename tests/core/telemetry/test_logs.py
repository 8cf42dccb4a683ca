import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from paceline_core.auth import new_key
from paceline_core.telemetry import configure, get_logger


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    kept, level = list(root.handlers), root.level
    text = io.StringIO()
    configure("test", "INFO", text)
    yield text
    root.handlers = kept
    root.setLevel(level)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_json_with_its_extra_fields(stream: io.StringIO) -> None:
    get_logger("a.b").info("scaled %s", "up", extra={"replicas": 3})
    [line] = lines(stream)
    assert line["message"] == "scaled up"
    assert (line["level"], line["component"], line["logger"], line["replicas"]) == ("info", "test", "a.b", 3)


@pytest.mark.parametrize("name", ["prompt", "messages", "content", "Authorization", "secret", "token", "api_key"])
def test_a_forbidden_field_never_reaches_the_log(stream: io.StringIO, name: str) -> None:
    get_logger("a").warning("x", extra={name: "the words of a user"})
    assert "words" not in stream.getvalue()


def test_an_api_key_is_masked_wherever_it_stands(stream: io.StringIO) -> None:
    _, key = new_key("t")
    get_logger("a").warning("got %s", key, extra={"header": f"Bearer {key}"})
    assert key not in stream.getvalue()
    assert stream.getvalue().count("pl_***") == 2


def test_an_exception_is_one_line_without_its_trace(stream: io.StringIO) -> None:
    try:
        dict[str, int]()["replicas"]
    except KeyError:
        get_logger("a").exception("failed")
    [line] = lines(stream)
    assert line["error"] == "KeyError: 'replicas'"
    assert "trace" not in line


@pytest.mark.parametrize("name", ["aiohttp.client", "asyncio", "httpcore.http11", "httpx", "kopf.objects", "urllib3"])
def test_at_debug_our_own_lines_are_not_drowned(stream: io.StringIO, name: str) -> None:
    configure("test", "DEBUG", stream)
    get_logger(name).debug("theirs")
    get_logger("paceline_core.kube").debug("ours")
    assert [line["message"] for line in lines(stream)] == ["ours"]


def test_httpx_tells_of_no_request_and_of_every_fault(stream: io.StringIO) -> None:
    get_logger("httpx").info("HTTP Request: GET /internal/load")
    get_logger("httpx").warning("odd")
    assert [line["message"] for line in lines(stream)] == ["odd"]


def test_a_higher_level_holds_for_others_too(stream: io.StringIO) -> None:
    configure("test", "ERROR", stream)
    get_logger("httpx").warning("odd")
    assert lines(stream) == []
