"""A device tells how likely a prompt's tokens were as transformers does, in chunks, single rows and steps one late."""

from pathlib import Path

import pytest
import torch
from tests.engine import reference
from tests.engine.driver import Driver
from tests.engine.gpu_bench import bench
from tests.engine.test_gpu_runner import AHEAD, ROOM, prompts
from tests.engine.test_prompt_logprobs import ask, check

from paceline_workers.engine.backends.gpu.device import opened
from paceline_workers.engine.backends.gpu.sampler import SCORED, PromptScorer, ScoredPrompt, ScoreRows
from paceline_workers.engine.sampling import prompt_logprob

pytestmark = pytest.mark.kernels


@AHEAD
@pytest.mark.parametrize("step_tokens", [1, 33, 96])
def test_they_are_those_of_transformers_whatever_shares_their_steps(
    tmp_path: Path, step_tokens: int, ahead: bool
) -> None:
    """A step of one token computes all prompts by single rows."""
    expected = reference.write(tmp_path, "llama", seed=4)
    run = Driver(bench(expected.folder, **ROOM), ahead=ahead, step_tokens=step_tokens)
    asked = prompts(2, 40, 31)
    run.submit("text", list(range(20)), 12)
    ask(run, asked)
    run.drain()
    check((expected, run.backend), run, asked)  # type: ignore[arg-type]
    alone = Driver(bench(expected.folder, **ROOM))
    alone.submit("text", list(range(20)), 12)
    alone.drain()
    assert run.text("text") == alone.text("text")


@AHEAD
def test_a_preemption_tells_none_twice_and_0_tokens_none(tmp_path: Path, ahead: bool) -> None:
    expected = reference.write(tmp_path, "llama", seed=5)
    run = Driver(bench(expected.folder, **ROOM), ahead=ahead, pages=9, max_model_len=120)
    asked = prompts(30, 31, 47, 5)
    ask(run, asked, 24)
    run.drain()
    assert run.core.counters.preemptions > 0
    check((expected, run.backend), run, asked)  # type: ignore[arg-type]
    ask(run, {"none": asked["r1"]}, 0)
    run.drain()
    check((expected, run.backend), run, {"none": asked["r1"]})  # type: ignore[arg-type]
    assert run.text("none") == []


def test_rows_are_scored_as_on_the_host_however_many_there_are() -> None:
    device = opened(torch.device("cpu"))
    logits = torch.randn(SCORED * 2 + 3, 50, generator=torch.Generator().manual_seed(1))
    chunks = [ScoredPrompt(0, [1] * (SCORED + 5), 3), ScoredPrompt(SCORED + 5, [49] * (SCORED - 2), 0)]
    rows = ScoreRows.of(chunks, device)
    found = PromptScorer.of(rows, lambda part: logits[rows.rows[part]]).copied(device).read(chunks)
    for chunk, entries in zip(chunks, found, strict=True):
        for place, (own, rank, best) in enumerate(entries):
            wanted = prompt_logprob(logits[chunk.row + place].numpy(), chunk.following[place], chunk.top)
            assert (rank, [token for token, _ in best]) == (wanted[1], [token for token, _ in wanted[2]])
            assert [own, *(value for _, value in best)] == pytest.approx(
                [wanted[0], *(value for _, value in wanted[2])]
            )
