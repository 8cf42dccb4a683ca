"""Bias and penalties: against transformers, against their formulas, in vLLM's order, over the whole history."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.engine import reference
from tests.engine.driver import Driver, load
from tests.engine.reference_scheduler import request

from paceline_workers.engine.sampling import Sampler, sample
from paceline_workers.engine.sampling.sample import Tally, add_bias, penalize
from paceline_workers.engine.scheduling import Request, RequestStatus
from paceline_workers.messages import Sampling

SIZE = 10
ROW = np.array([2.0, -1.0, 0.5, 0.0, -3.0, 4.0, 1.0, -0.5, 3.0, 2.5], dtype=np.float32)
GREEDY = {"temperature": 0.0}


def entry(prompt: list[int], output: list[int], **sampling: Any) -> Request:
    made = request("a", prompt, 99)
    made.tokens += output
    made.sampling = Sampling(**sampling)
    made.state = RequestStatus.RUNNING
    return made


def penalized(made: Request) -> NDArray[np.float64]:
    row = ROW.astype(np.float64)
    penalize(row, Tally(made), made.sampling)
    return row


ids = st.lists(st.integers(0, SIZE - 1), max_size=12)


@given(ids.filter(bool), ids, st.floats(0.5, 2.0))
def test_repetition_is_that_of_transformers_over_prompt_and_output(
    prompt: list[int], output: list[int], penalty: float
) -> None:
    import transformers

    theirs: Any = transformers.RepetitionPenaltyLogitsProcessor(penalty)
    expected = theirs(torch.tensor([prompt + output]), torch.tensor(ROW)[None])[0].numpy()
    assert penalized(entry(prompt, output, repetition=penalty)) == pytest.approx(expected, rel=1e-6)


@given(ids.filter(bool), ids, st.floats(-2, 2), st.floats(-2, 2))
def test_presence_and_frequency_count_the_output_alone(
    prompt: list[int], output: list[int], presence: float, frequency: float
) -> None:
    seen = penalized(entry(prompt, output, presence=presence, frequency=frequency))
    for token in range(SIZE):
        count = output.count(token)
        assert seen[token] == pytest.approx(float(ROW[token]) - frequency * count - presence * (count > 0))


def test_bias_comes_first_then_repetition_then_what_is_taken_off() -> None:
    # 2.0 + 2.0 = 4.0; / 2.0 = 2.0; - 2 x 0.25 - 0.4 = 1.1, just below token 6; any other order leaves it above
    fields: dict[str, Any] = {"repetition": 2.0, "presence": 0.4, "frequency": 0.25}
    others = dict.fromkeys((5, 8, 9), -100.0)
    (just_more,) = sample(ROW[None], [entry([1], [0, 0], **GREEDY, **fields, bias={**others, 0: 2.0, 6: 0.11})])
    (just_less,) = sample(ROW[None], [entry([1], [0, 0], **GREEDY, **fields, bias={**others, 0: 2.0, 6: 0.09})])
    assert (just_more.token, just_less.token) == (6, 0)


def test_bias_can_force_or_ban_a_token_and_unknown_ids_are_ignored() -> None:
    force, ban = (entry([1], [], **GREEDY, bias=bias) for bias in ({4: 100.0}, {5: -100.0, -1: 100.0, SIZE: 100.0}))
    assert [one.token for one in sample(np.tile(ROW, (2, 1)), [force, ban])] == [4, 8]
    row = np.zeros(3)
    add_bias(row, {7: 1.0})
    assert not row.any()


def test_logprobs_do_not_see_bias_and_penalties() -> None:
    plain, changed = entry([1], [5], **GREEDY, logprobs=2), entry([1], [5], **GREEDY, logprobs=2, bias={8: 50.0})
    first, second = sample(np.tile(ROW, (2, 1)), [plain, changed])
    assert (first.token, second.token) == (5, 8)
    assert first.logprobs is not None
    assert second.logprobs is not None
    assert first.logprobs[1] == second.logprobs[1]


def test_a_sampler_that_has_followed_a_request_does_as_one_that_meets_it() -> None:
    followed = Sampler()
    made = entry([1, 2], [], **GREEDY, repetition=1.5, frequency=0.3, presence=0.2)
    for _ in range(20):
        (one,) = followed(ROW[None], [made])
        assert sample(ROW[None], [made]) == [one]
        made.tokens.append(one.token)
    assert len(set(made.tokens[2:])) > 4


def test_a_sampler_forgets_whom_it_no_longer_serves() -> None:
    sampler = Sampler()
    ended, preempted, plain = (entry([1], [2], frequency=value) for value in (1.0, 1.0, 0.0))
    sampler(np.tile(ROW, (3, 1)), [ended, preempted, plain])
    assert sampler.retained == 2
    ended.state, preempted.state = RequestStatus.DONE, RequestStatus.WAITING
    sampler(ROW[None], [plain])
    assert sampler.retained == 0


def test_greedy_text_with_a_repetition_penalty_is_that_of_transformers(tmp_path: Path) -> None:
    expected = reference.write(tmp_path, "llama", seed=5)
    prompt = list(range(40, 70))
    run = Driver(load(tmp_path))
    run.submit("a", prompt, 40, Sampling(temperature=0.0, repetition=1.4))
    run.submit("plain", prompt, 40)
    run.drain()
    whole = expected.model.generate(
        torch.tensor([prompt]), max_new_tokens=40, do_sample=False, repetition_penalty=1.4, eos_token_id=None
    )
    assert run.text("a") == whole[0, len(prompt) :].tolist()
    assert run.text("a") != run.text("plain")
