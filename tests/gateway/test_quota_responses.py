"""`x-ratelimit-*` in OpenAI's words."""

from tests.every import cases
from tests.gateway.quota_bench import ONE, granted, limited, refused

from paceline_gateway.quota.leased_buckets import duration
from paceline_gateway.quota.manager import QuotaManager
from paceline_gateway.quota.types import QuotaUsage


@cases(
    ("seconds", "text"),
    [
        (0.0, "0s"),
        (0.0001, "0s"),
        (0.017, "17ms"),
        (0.9999, "1s"),
        (1.0, "1s"),
        (1.5, "1.5s"),
        (59.9996, "1m0s"),
        (360.0, "6m0s"),
        (3602.25, "1h0m2.25s"),
        (-1.0, "0s"),
    ],
)
def test_durations_are_written_as_openai_does(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def lines(fields: bytes) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in fields.decode().splitlines())


def test_limit_remaining_and_reset_include_the_request_itself() -> None:
    who = limited(requestsPerMinute=60, outputTokensPerMinute=6000)
    assert lines(granted(QuotaManager(), who, QuotaUsage(1, 10, 600), 0.0).fields) == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-reset-requests": "1s",
        "x-ratelimit-limit-tokens": "6000",
        "x-ratelimit-remaining-tokens": "5400",
        "x-ratelimit-reset-tokens": "6s",
    }


def test_of_input_and_output_the_scarcer_one_is_reported() -> None:
    who = limited(inputTokensPerMinute=1000, outputTokensPerMinute=6000)
    fields = lines(granted(QuotaManager(), who, QuotaUsage(1, 900, 600), 0.0).fields)
    assert (fields["x-ratelimit-limit-tokens"], fields["x-ratelimit-remaining-tokens"]) == ("1000", "100")
    assert "x-ratelimit-limit-requests" not in fields


def test_an_overdrawn_limit_has_nothing_left() -> None:
    fields = lines(granted(QuotaManager(), limited(inputTokensPerMinute=60), QuotaUsage(1, 600, 0), 0.0).fields)
    assert fields["x-ratelimit-remaining-tokens"] == "0"
    assert fields["x-ratelimit-reset-tokens"] == "10m0s"


def test_a_limit_of_zero_is_reported_as_never_refilled() -> None:
    quotas, who = QuotaManager(), limited(requestsPerMinute=0, outputTokensPerMinute=0)
    assert lines(quotas.fields(who, 0.0)) == {
        f"x-ratelimit-{word}-{what}": "0" for word in ("limit", "remaining") for what in ("requests", "tokens")
    }
    assert refused(quotas, who, ONE, 0.0).retry_after is None
