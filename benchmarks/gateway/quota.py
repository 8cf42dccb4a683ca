"""A limit of 100 output tokens a minute under five requests at once (litellm#18730), which was passed 6.6 times there.

Answers have 40 tokens. Once the requests say so (`max_tokens`) while all answers so far, another tenant's, were
shorter; and once the gateway must have learned it from those. What was let through is what the upstreams have produced.
The limit refills while the requests last, and one estimate may be wrong, by an answer at most.
"""

import json

import uvloop
from benchmarks.gateway.client import Load, Target
from benchmarks.gateway.options import Options
from benchmarks.gateway.script import Script
from benchmarks.gateway.stage import OURS, Stage
from benchmarks.gateway.work import bodies
from benchmarks.harness import Bar, Measured, Row

LIMIT, TOKENS, AT_ONCE, REQUESTS, LEARNED = 100, 40, 5, 100, 200
SCRIPT = Script(tokens=TOKENS, pace_s=0.005)


def quota(stage: Stage, _: Options) -> Measured:
    """Tokens let through, given and learned."""
    contestant = stage.contestants[OURS]
    plain = bodies(16)
    given = [json.dumps(json.loads(body) | {"max_tokens": TOKENS}).encode() for body in plain]
    tight, as_tight = stage.keys[1:]
    with stage.turn(OURS, SCRIPT) as target:
        rows = _rows("max_tokens given", stage, Target(OURS, (contestant.port,), tight), given)
        uvloop.run(Load(target, SCRIPT, plain).closed(16, LEARNED))
        rows += _rows("answers learned", stage, Target(OURS, (contestant.port,), as_tight), plain)
    return rows, {}


def _rows(how: str, stage: Stage, target: Target, asked: list[bytes]) -> list[Row]:
    before = stage.counts("tokens")
    tally = uvloop.run(Load(target, SCRIPT, asked).closed(AT_ONCE, REQUESTS))
    admitted = stage.counts("tokens") - before
    others = REQUESTS - tally.statuses[200] - tally.statuses[429]
    allowed = LIMIT + tally.seconds * LIMIT / 60 + TOKENS
    name = f"{LIMIT} tokens a minute, {AT_ONCE} at once, {how}"
    return [
        Row(f"{name}: tokens let through", admitted, f"of {REQUESTS * TOKENS}", bar=Bar(allowed)),
        Row(f"{name}: answers that were neither 200 nor 429", others, "", bar=Bar(0)),
    ]
