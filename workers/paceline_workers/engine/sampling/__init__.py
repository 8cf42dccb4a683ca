"""From logits to tokens: adjusts, filters, draws, and reports log-probabilities. One idea a file; numpy, no torch."""

from paceline_workers.engine.sampling.grammar_matcher import Grammars
from paceline_workers.engine.sampling.sample import Purpose, Sampler, filtered, logprobs, noise, prompt_logprob, sample

__all__ = ["Grammars", "Purpose", "Sampler", "filtered", "logprobs", "noise", "prompt_logprob", "sample"]
