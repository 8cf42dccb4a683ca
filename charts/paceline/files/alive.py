"""`helm test`: every URL answers within a minute. A 401 is an answer: the gateway is up and asks for a key."""
# ruff: noqa: INP001 - a file of the chart that a pod of our image runs, no module

import sys
import time

import httpx

LIMIT_S, PAUSE_S, CALL_S = 60.0, 2.0, 5.0
ALIVE = ("200", "401")


def status(url: str) -> str:
    """The answer's status, or why there is none."""
    try:
        return str(httpx.get(url, timeout=CALL_S, trust_env=False).status_code)
    except httpx.HTTPError as error:
        return str(error)


def alive(url: str, end: float) -> bool:
    """Ask until it is alive or the time is up; say what came last."""
    while (last := status(url)) not in ALIVE and time.monotonic() < end:
        time.sleep(PAUSE_S)
    sys.stdout.write(f"{'ok  ' if last in ALIVE else 'FAIL'} {url} {last}\n")
    return last in ALIVE


if __name__ == "__main__":
    limit = time.monotonic() + LIMIT_S
    sys.exit(0 if all([alive(url, limit) for url in sys.argv[1:]]) else 1)  # noqa: C419 - say it of every URL
