"""The step-time model: seconds of one engine step from what is in it. Planner, worker, gateway, autoscaler share it."""

from paceline_core.wire.message import WireModel


class StepTime(WireModel):
    """`base + prefill * p + sequence * b + kv * k + context * p * c`.

    p: prefill tokens in the step; b: sequences; k: KV tokens read by all sequences; c: mean context of the prefill
    tokens. Coefficients in seconds (per token, per sequence, per token pair). `observations` is 0 for a prior.
    """

    base: float
    prefill: float
    sequence: float = 0.0
    kv: float = 0.0
    context: float = 0.0
    observations: int = 0

    def seconds(self, *, prefill_tokens: int, sequences: int, kv_tokens: int, context: float = 0.0) -> float:
        """Predicted seconds of one step; never negative."""
        linear = self.base + self.prefill * prefill_tokens + self.sequence * sequences + self.kv * kv_tokens
        return max(linear + self.context * prefill_tokens * context, 0.0)
