"""Who has a place in the sampler's state, and that it knows no token that was thrown away."""

import pytest
import torch
from tests.engine.gpu_bench import KERNELS
from tests.engine.reference_scheduler import PROMPT, beams, request
from tests.kernels.conftest import CUDA

from paceline_workers.engine.backends.gpu.device import opened
from paceline_workers.engine.backends.gpu.sampler import DeviceSampler, SampleReader
from paceline_workers.engine.backends.gpu.step_inputs import NO_ROW
from paceline_workers.engine.scheduling import Request
from paceline_workers.engine.scheduling.request import RequestStatus
from paceline_workers.engine.scheduling.search import Search
from paceline_workers.messages import Sampling

pytestmark = pytest.mark.kernels
VOCAB = 20


def running(name: str, sampling: Sampling | None = None) -> Request:
    entry = request(name, [1, 2])
    entry.state, entry.sampling = RequestStatus.RUNNING, sampling or Sampling(temperature=0.0)
    return entry


def drawing(places: int = 3) -> DeviceSampler:
    return DeviceSampler(places, VOCAB, opened(torch.device("cuda" if CUDA else "cpu")), KERNELS)


def draw(made: DeviceSampler, entry: Request) -> int:
    """The next token of a request whose logits prefer 3 to 4 by less than a penalty, and both to all others."""
    logits = torch.zeros(1, VOCAB)
    logits[0, 3], logits[0, 4] = 2.0, 1.9
    where = made.drawn.tokens.device
    made.renew()
    seats = torch.tensor([made.sample_slot(entry)], dtype=torch.int32, device=where)
    made.draw(logits.to(where), seats, torch.tensor([len(entry.tokens)], dtype=torch.int32, device=where))
    return SampleReader(made.drawn).sample(0, entry).token


def test_tokens_drawn_one_step_ahead_are_counted_though_the_host_does_not_know_them() -> None:
    made, entry = drawing(), running("a", Sampling(temperature=0.0, frequency=0.5))
    assert [draw(made, entry) for _ in range(2)] == [3, 4]


def test_a_token_that_a_preemption_threw_away_is_drawn_again() -> None:
    made, entry = drawing(), running("a", Sampling(temperature=0.0, frequency=0.5))
    assert draw(made, entry) == 3
    entry.preemptions += 1
    assert draw(made, entry) == 3
    entry.tokens.append(3)
    assert draw(made, entry) == 4


def test_a_place_is_kept_while_a_request_runs_and_given_to_another_then() -> None:
    made = drawing(2)
    one, two, three = (running(name) for name in "abc")
    places = [made.sample_slot(one), made.sample_slot(two)]
    assert sorted(places) == [0, 1]
    made.renew()
    assert [made.sample_slot(one), made.sample_slot(two)] == places
    one.state = RequestStatus.DONE
    made.renew()
    assert (made.sample_slot(two), made.sample_slot(three)) == (places[1], places[0])


def test_who_the_host_must_draw_for_has_no_place() -> None:
    made = drawing()
    vector = running("vector")
    vector.embed = True
    lead = beams("beam", list(PROMPT), Search(2, 3, frozenset()))
    others = [
        running("grammar", Sampling(grammar="json")),
        running("biases", Sampling(bias=dict.fromkeys(range(5000), 1.0))),
        running("tops", Sampling(logprobs=50)),
    ]
    assert [made.sample_slot(entry) for entry in (vector, lead, *others)] == [NO_ROW] * 5


def test_a_row_without_a_finite_logit_is_told_in_words() -> None:
    made, entry = drawing(), running("a")
    seats = torch.tensor([made.sample_slot(entry)], dtype=torch.int32, device=made.drawn.tokens.device)
    made.draw(torch.full((1, VOCAB), torch.nan, device=seats.device), seats, seats + 2)
    assert SampleReader(made.drawn).sample(0, entry).error == "The model computed nan where a number belongs."
