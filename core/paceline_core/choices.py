"""How many answers a request may ask for. The gateway refuses more before it reserves quota, a worker before it runs.

Invariant: gateway and workers take the same numbers, so what the gateway reserves for, a worker takes.
"""

CHOICES_PER_PROMPT = 32
"""Of `n` and `best_of`: each is a sequence of its own in the engine's queue."""
CHOICES_PER_REQUEST = 128
"""Of all prompts together: as many as a stream can be resumed with."""


def too_many_choices(prompts: int, each: int) -> str:
    """Return why so many prompts of so many answers each are refused, "" if they are not."""
    if prompts * each <= CHOICES_PER_REQUEST:
        return ""
    held = f"`prompt` holds {prompts} prompts of {each} answers each"
    return f"{held}; at most {CHOICES_PER_REQUEST} are answered at a time."
