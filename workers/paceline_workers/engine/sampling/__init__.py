"""From logits to tokens: adjust, filter, draw, and tell the log-probabilities. One idea a file; numpy, no torch."""

from paceline_workers.engine.sampling.grammar_matcher import Grammars
from paceline_workers.engine.sampling.logits import filtered
from paceline_workers.engine.sampling.noise import Purpose, noise
from paceline_workers.engine.sampling.sample import Sampler, logprobs, prompt_logprob, sample

__all__ = ["Grammars", "Purpose", "Sampler", "filtered", "logprobs", "noise", "prompt_logprob", "sample"]
