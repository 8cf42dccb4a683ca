"""The two caps of an engine that memory and step time depend on."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Caps:
    """`step_tokens`: most tokens in one step; `sequences`: most requests running at once. Defaults as in manifests."""

    step_tokens: int = 2048
    sequences: int = 64


DEFAULT_CAPS = Caps()
