"""From logits to tokens: adjust, filter, draw, and tell the log-probabilities. One idea a file; numpy, no torch."""

from paceline_workers.engine.sampling.filters import filtered
from paceline_workers.engine.sampling.logprobs import logprobs, prompt_logprob
from paceline_workers.engine.sampling.matching import Grammars
from paceline_workers.engine.sampling.noise import Purpose, noise
from paceline_workers.engine.sampling.sample import Sampler, sample

__all__ = ["Grammars", "Purpose", "Sampler", "filtered", "logprobs", "noise", "prompt_logprob", "sample"]
