import json

import pytest
from tests.every import cases

from paceline_core.errors import ERRORS, Code, ErrorTiming, RequestError, RetryAfter, error_response
from paceline_core.registry import Outcome


@cases("code", Code)
def test_every_code_answers_with_an_openai_error_object(code: Code) -> None:
    result = error_response(RequestError(code, "what and how to mend it", param="model"))
    error = json.loads(result.body)["error"]
    assert error == {"message": "what and how to mend it", "type": ERRORS[code].type, "param": "model", "code": code}
    assert result.status == ERRORS[code].status
    assert result.headers["x-should-retry"] == ("true" if ERRORS[code].should_retry else "false")


def test_a_message_is_cut_where_it_would_send_back_what_a_client_sent() -> None:
    error = json.loads(error_response(RequestError(Code.INVALID_REQUEST, "x" * 1_000_000)).body)["error"]
    assert error["message"] == "x" * 4096 + "..."


def test_an_unexpected_exception_keeps_its_text_to_itself() -> None:
    result = error_response(KeyError("/secret/path"))
    assert result.status == 500
    assert b"secret" not in result.body


def test_a_wait_is_rounded_up_so_that_a_client_never_comes_too_early() -> None:
    result = error_response(RequestError(Code.QUEUE_FULL, "full", retry_after=1.2))
    assert (result.headers["retry-after"], result.headers["retry-after-ms"]) == ("2", "1200")


def test_a_wait_longer_than_clients_keep_is_told_and_not_worth_a_retry() -> None:
    kept, long = (
        error_response(RequestError(Code.RATE_LIMIT_EXCEEDED, "no", retry_after=wait)) for wait in (60.0, 60.5)
    )
    assert (kept.headers["x-should-retry"], long.headers["x-should-retry"]) == ("true", "false")
    assert long.headers["retry-after"] == "61"


def test_after_the_first_byte_the_error_is_an_event_and_the_stream_ends() -> None:
    event = error_response(RequestError(Code.STREAM_LOST, "lost")).event
    first, second, rest = event.split(b"\n\n")
    assert json.loads(first.removeprefix(b"data: "))["error"]["code"] == "stream_lost"
    assert (second, rest) == (b"data: [DONE]", b"")


def test_an_error_in_a_stream_of_responses_is_an_event_by_which_clients_know_it() -> None:
    """OpenAI's clients raise what has `error`; others go by `type`, and expect a number."""
    result = error_response(RequestError(Code.STREAM_LOST, "lost", param="p"), "/v1/responses")
    named, data, done = result.event.replace(b"\n\n", b"\n").split(b"\n")[:3]
    event = json.loads(data.removeprefix(b"data: "))
    assert (named, done) == (b"event: error", b"data: [DONE]")
    assert data.startswith(b'data: {"error"')
    assert event["error"] == json.loads(result.body)["error"]
    told = {name: event[name] for name in ("type", "code", "message", "param", "sequence_number")}
    assert told == {
        "type": "error", "code": "stream_lost", "message": "lost", "param": "p", "sequence_number": 2**31 - 1
    }  # fmt: skip


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
def test_below_the_route_of_messages_every_error_has_anthropics_form(path: str) -> None:
    types = {
        400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
        413: "request_too_large", 429: "rate_limit_error", 503: "overloaded_error", 504: "timeout_error",
    }  # fmt: skip
    for code in Code:
        result = error_response(RequestError(code, "words"), path)
        told = json.loads(result.body)
        assert (told["type"], told["error"]["message"], told["error"]["code"]) == ("error", "words", code)
        rest = "invalid_request_error" if result.status < 500 else "api_error"
        assert told["error"]["type"] == types.get(result.status, rest)


def test_only_waiting_errors_carry_a_wait_and_only_retryable_ones_do() -> None:
    for row in ERRORS.values():
        assert row.retry_after is RetryAfter.NONE or row.should_retry


def test_the_client_is_at_fault_exactly_below_five_hundred() -> None:
    at_fault = {Outcome.CLIENT_ERROR, Outcome.QUOTA, Outcome.CANCELLED}
    for row in ERRORS.values():
        assert (row.outcome in at_fault) == (row.status < 500)


def test_errors_after_the_first_byte_are_the_few_that_can_happen_there() -> None:
    late = {code for code, row in ERRORS.items() if row.moment is not ErrorTiming.BEFORE}
    client = {Code.CLIENT_CLOSED, Code.CLIENT_STALLED, Code.INVALID_REQUEST}
    lost = {Code.UPSTREAM_TIMEOUT, Code.STREAM_LOST, Code.REQUEST_ISOLATED}
    assert late == client | lost | {Code.INTERNAL_ERROR, Code.ENGINE_FAILED}
