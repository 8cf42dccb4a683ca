"""The online step-time fit: finds the truth from noisy steps, ignores stalls, follows a changed machine."""

import random

import pytest

from paceline_core.wire import StepTime
from paceline_workers.engine.steptime import PERSISTENT, StepTimeFit
from paceline_workers.messages import StepStats

PRIOR = StepTime(base=0.008, prefill=2e-5, sequence=1e-5, kv=4e-8, context=1e-9)
TRUTH = StepTime(base=0.012, prefill=1.5e-5, sequence=3e-5, kv=6e-8, context=2e-9)


def step(chance: random.Random, truth: StepTime, noise: float = 0.03) -> StepStats:
    prefill = chance.choice([0, 0, 64, 512, 2048])
    context = chance.uniform(1, 8000) if prefill else 0.0
    decodes = chance.randrange(64)
    kv = decodes * chance.randrange(1, 4000)
    seconds = truth.seconds(prefill_tokens=prefill, sequences=decodes, kv_tokens=kv, context=context)
    return StepStats(seconds * chance.gauss(1, noise), prefill, decodes, decodes + 1, kv, context=context)


def error(model: StepTime, stats: StepStats) -> float:
    guess = model.seconds(
        prefill_tokens=stats.prefill_tokens,
        sequences=stats.decode_tokens,
        kv_tokens=stats.kv_tokens,
        context=stats.context,
    )
    return abs(guess - stats.seconds) / stats.seconds


def learned(count: int = 600, truth: StepTime = TRUTH, prior: StepTime = PRIOR) -> StepTimeFit:
    chance, fit = random.Random(1), StepTimeFit(prior)
    for _ in range(count):
        fit.observe(step(chance, truth))
    return fit


def worst(model: StepTime, truth: StepTime) -> float:
    chance = random.Random(2)
    return max(error(model, step(chance, truth, noise=0.0)) for _ in range(300))


def test_before_the_first_step_the_fit_is_the_prior() -> None:
    assert StepTimeFit(PRIOR).model == PRIOR


def test_the_error_is_the_spread_of_the_steps_around_the_fit() -> None:
    assert StepTimeFit(PRIOR).error == 0.0
    assert learned().error == pytest.approx(0.03, rel=0.35)


def test_a_stall_hardly_moves_the_error() -> None:
    fit = learned()
    before = fit.error
    fit.observe(StepStats(3.0, 0, 8, 9, 8000))
    assert fit.error == before


def test_the_fit_finds_the_truth_behind_noisy_steps() -> None:
    assert worst(PRIOR, TRUTH) > 0.3
    assert worst(learned().model, TRUTH) < 0.05


def test_a_prior_wrong_by_a_factor_of_five_is_overcome() -> None:
    slow = StepTime(base=0.06, prefill=1e-4, sequence=5e-5, kv=2e-7, context=5e-9)
    assert worst(learned(truth=slow).model, slow) < 0.05


def test_terms_that_the_prior_does_not_have_are_learned() -> None:
    assert worst(learned(prior=StepTime(base=0.008, prefill=2e-5)).model, TRUTH) < 0.1


def test_a_few_stalls_move_nothing() -> None:
    fit = learned()
    before = fit.model
    for _ in range(PERSISTENT - 1):
        fit.observe(StepStats(5.0, 0, 8, 8, 8000))
    assert fit.model == before


def test_a_machine_that_stays_slower_is_believed() -> None:
    fit = learned()
    slower = StepTime(base=0.05, prefill=6e-5, sequence=1e-4, kv=2e-7, context=8e-9)
    chance = random.Random(3)
    for _ in range(600):
        fit.observe(step(chance, slower))
    assert worst(fit.model, slower) < 0.08


def test_coefficients_are_never_negative() -> None:
    fit = StepTimeFit(PRIOR)
    chance = random.Random(4)
    for _ in range(300):
        fit.observe(StepStats(0.001 * chance.uniform(0.1, 2), 64, 8, 9, chance.randrange(9000), context=32.0))
        model = fit.model
        assert min(model.base, model.prefill, model.sequence, model.kv, model.context) >= 0


def test_a_term_that_the_prior_has_below_zero_is_learned_as_if_it_were_absent() -> None:
    """A chord over a flat roofline may fall a little."""
    model = learned(prior=PRIOR.model_copy(update={"prefill": -1e-11})).model
    assert model.prefill > 0
    assert worst(model, TRUTH) < 0.1


def test_steps_of_one_kind_for_ever_leave_the_other_terms_usable() -> None:
    fit = learned()
    for _ in range(5_000):
        fit.observe(StepStats(TRUTH.seconds(prefill_tokens=0, sequences=1, kv_tokens=500), 0, 1, 1, 500))
    assert worst(fit.model, TRUTH) < 0.5


def test_a_step_without_time_is_ignored() -> None:
    fit = StepTimeFit(PRIOR)
    fit.observe(StepStats(0.0, 1, 1, 1, 1))
    assert fit.model.observations == 0
    fit.observe(StepStats(0.01, 1, 1, 1, 1))
    assert fit.model.observations == pytest.approx(1)
