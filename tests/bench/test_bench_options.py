"""From the command line's words to a profile, and from two answers to the length of a prompt."""

import pytest

from paceline_cli.bench.profiles import (
    PROBE_WORDS,
    BenchOptions,
    LoadPhase,
    ProfileName,
    Spacing,
    Writer,
    calibrate,
    profile_of,
)
from paceline_core.errors import InvalidInput


def test_a_burst_is_prefill_bound_by_default() -> None:
    profile = profile_of(BenchOptions(ProfileName.BURST))
    assert profile.prompt_tokens >= 4096
    assert profile.output_tokens <= 64
    assert [phase.name for phase in profile.phases] == ["before", "burst", "after"]


def test_a_burst_takes_three_durations_and_a_relative_rate() -> None:
    profile = profile_of(BenchOptions(ProfileName.BURST, rate=1.5, burst_rate="4x", duration="10s, 20s,1m"))
    assert profile.phases == (LoadPhase("before", 10, 1.5), LoadPhase("burst", 20, 6.0), LoadPhase("after", 60, 1.5))


@pytest.mark.parametrize(
    ("name", "spacing"), [(ProfileName.POISSON, Spacing.POISSON), (ProfileName.STEADY, Spacing.EVEN)]
)
def test_other_profiles_take_one_duration(name: ProfileName, spacing: Spacing) -> None:
    profile = profile_of(BenchOptions(name, rate=7, duration="5s", prompt_tokens=100, output_tokens=9))
    assert (profile.phases, profile.spacing) == ((LoadPhase("load", 5, 7),), spacing)
    assert (profile.prompt_tokens, profile.output_tokens) == (100, 9)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        (BenchOptions(ProfileName.BURST, duration="30s"), "duration"),
        (BenchOptions(ProfileName.POISSON, duration="30s,30s"), "duration"),
        (BenchOptions(ProfileName.POISSON, duration="long"), "duration"),
        (BenchOptions(ProfileName.POISSON, rate=0), "rate"),
        (BenchOptions(ProfileName.BURST, burst_rate="many"), "burst-rate"),
        (BenchOptions(ProfileName.POISSON, prompt_tokens=-1), "prompt-tokens"),
    ],
)
def test_a_wrong_option_is_named(options: BenchOptions, field: str) -> None:
    with pytest.raises(InvalidInput, match=field):
        profile_of(options)


@pytest.mark.parametrize(("per_word", "overhead"), [(1.0, 3), (1.25, 20), (0.75, 0)])
def test_a_calibrated_prompt_costs_about_what_was_wanted(per_word: float, overhead: int) -> None:
    def count(words: int) -> int:
        return round(words * per_word) + overhead

    cost = calibrate(count(1), count(1 + PROBE_WORDS))
    for wanted in (64, 1000, 8192):
        assert count(cost.words(wanted)) == pytest.approx(wanted, rel=0.02)


def test_a_prompt_has_at_least_one_word() -> None:
    assert calibrate(10, 10 + PROBE_WORDS).words(1) == 1


def test_a_server_that_counts_no_words_cannot_be_calibrated() -> None:
    with pytest.raises(InvalidInput, match="usage"):
        calibrate(5, 5)


def test_no_two_prompts_share_a_beginning() -> None:
    writer = Writer(0)
    prompts = [writer.text(50) for _ in range(100)]
    assert len({prompt[:60] for prompt in prompts}) == 100


@pytest.mark.parametrize("words", [1, 15, 16, 17, 5000])
def test_a_prompt_has_exactly_its_words(words: int) -> None:
    assert len(Writer(0).text(words).split()) == words


def test_the_same_seed_writes_the_same_prompts() -> None:
    one, two = Writer(5), Writer(5)
    assert [one.text(n) for n in (40, 40, 20)] == [two.text(n) for n in (40, 40, 20)]
