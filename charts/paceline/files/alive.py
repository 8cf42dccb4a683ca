"""`helm test`: every URL answers within a minute. A 401 is an answer: the gateway is up and asks for a key."""

import sys
import time
import urllib.error
import urllib.request

LIMIT_S, PAUSE_S, CALL_S = 60.0, 2.0, 5.0
ALIVE = (200, 401)


def status(url: str) -> str:
    """The answer's status, or why there is none."""
    try:
        with urllib.request.urlopen(url, timeout=CALL_S) as answer:
            return str(answer.status)
    except urllib.error.HTTPError as error:
        return str(error.code)
    except OSError as error:
        return str(error)


def wait(url: str) -> bool:
    """Ask until it is alive or the time is up; say what came last."""
    end = time.monotonic() + LIMIT_S
    while (last := status(url)) not in map(str, ALIVE) and time.monotonic() < end:
        time.sleep(PAUSE_S)
    alive = last in map(str, ALIVE)
    print("ok  " if alive else "FAIL", url, last, flush=True)
    return alive


if __name__ == "__main__":
    sys.exit(0 if all([wait(url) for url in sys.argv[1:]]) else 1)
