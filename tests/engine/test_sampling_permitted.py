"""Lists of a request's own: the only tokens that may be drawn, and sequences that must not be completed."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.reference_scheduler import request

from paceline_workers import demo
from paceline_workers.engine.backends.emulated import Vocabulary
from paceline_workers.engine.backends.gpu.sampler import wanted
from paceline_workers.engine.sampling import Sampler, sample
from paceline_workers.engine.scheduling import Request
from paceline_workers.engine.scheduling.request import RequestStatus
from paceline_workers.messages import Sampling

LOGITS = np.array([[2.0, 1.5, 1.0, 0.5, 0.0]], dtype=np.float32)
GREEDY = Sampling(temperature=0.0)


def entry(prompt: Sequence[int], output: Sequence[int], **lists: list[int] | list[list[int]]) -> Request:
    made = request("a", list(prompt), 9)
    made.tokens += output
    made.sampling = Sampling(temperature=0.0, logprobs=2, **lists)  # type: ignore[arg-type]
    return made


def drawn(made: Request) -> int:
    return sample(LOGITS, [made])[0].token


def test_only_allowed_tokens_are_drawn_greedily_and_by_chance() -> None:
    made = entry([0], [], allowed=[3, 4, 99])
    assert drawn(made) == 3
    made.sampling = Sampling(allowed=[1, 3], temperature=3.0)
    tokens = []
    for _ in range(60):
        tokens.append(drawn(made))
        made.tokens.append(tokens[-1])
    assert set(tokens) == {1, 3}


def test_logprobs_stay_those_of_the_models_own_distribution() -> None:
    (told,) = sample(LOGITS, [entry([0], [], allowed=[3])])
    (free,) = sample(LOGITS, [entry([0], [])])
    assert told.token == 3
    assert told.logprobs is not None
    assert free.logprobs is not None
    assert told.logprobs[1] == free.logprobs[1]
    assert told.logprobs[0] < free.logprobs[0]


@pytest.mark.parametrize(
    ("prompt", "output", "token"),
    [
        ([0], [], 1),  # 0 alone is bad
        ([0], [1], 2),  # 1 follows 1
        ([0, 1], [], 1),  # the prompt begins no bad word
        ([0], [2, 3], 2),  # 1 follows 2, 3
        ([0, 2], [3], 1),
        ([0], [3], 1),
    ],
)
def test_the_last_token_of_a_bad_word_is_not_drawn_where_it_would_complete_it(
    prompt: list[int], output: list[int], token: int
) -> None:
    assert drawn(entry(prompt, output, bad_words=[[0], [1, 1], [2, 3, 1]])) == token


@given(
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=3), min_size=1, max_size=6),
    st.lists(st.integers(0, 3), max_size=2),
    st.lists(st.integers(0, 3), max_size=5),
)
def test_no_output_holds_a_bad_word_and_every_other_is_possible(
    words: list[list[int]], prompt: list[int], output: list[int]
) -> None:
    made = entry([0, *prompt], output, bad_words=words)
    completed = {
        token for token in range(4) for word in words if [*output, token][-len(word) :] == word
    }  # as `endswith` says it
    assert set(made.bad_word_ends) == completed


def test_lists_that_leave_nothing_are_the_requests_own_fault() -> None:
    for made in (entry([0], [], allowed=[99]), entry([0], [], allowed=[1], bad_words=[[1]])):
        (refused,) = sample(LOGITS, [made])
        assert refused.refused
        assert "`allowed_token_ids`" in refused.error


def test_min_tokens_holds_back_the_end_within_the_allowed_tokens() -> None:
    made = replace(entry([0], [], allowed=[0, 4]), min_tokens=1, stop_ids=frozenset({0}))
    assert drawn(made) == 4
    made.tokens.append(4)
    assert drawn(made) == 0


def test_what_is_kept_of_a_list_goes_with_its_request() -> None:
    sampler, made = Sampler(), entry([0], [], allowed=[3])
    made.state = RequestStatus.RUNNING
    sampler(LOGITS, [made])
    assert sampler.retained == 1
    made.state = RequestStatus.DONE
    sampler(LOGITS[:0], [])
    assert sampler.retained == 0


def test_a_gpu_leaves_such_a_request_to_the_hosts_sampler() -> None:
    assert wanted(entry([0], [])) is not None
    assert wanted(entry([0], [], allowed=[3])) is None
    assert wanted(entry([0], [], bad_words=[[3]])) is None


def test_an_emulated_model_keeps_to_the_lists() -> None:
    vocabulary = Vocabulary.read(demo.FOLDER)
    one, two, three = vocabulary.words[:3]
    made = entry([5], [], allowed=[one, two, three], bad_words=[[two], [one, one]])
    for _ in range(40):
        made.tokens.append(vocabulary.draw(made).token)
    output = made.tokens[1:]
    assert set(output) == {one, three}
    assert (one, one) not in pairwise(output)
    assert vocabulary.draw(entry([5], [], allowed=[one], bad_words=[[one]])).refused
