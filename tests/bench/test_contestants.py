"""How a measured process is started (`benchmarks.gateway.contestant`)."""

import os
import sys
from pathlib import Path

import pytest
from benchmarks.gateway.contestant import Contestant
from tests.ports import free_port


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="contestants have a core of their own")
def test_a_contestant_stays_in_the_session_of_what_it_shares_a_core_with(tmp_path: Path) -> None:
    waiting = [sys.executable, "-c", "import time; time.sleep(60)"]
    contestant = Contestant("waiting", waiting, free_port(), tmp_path / "log")
    contestant.start()
    try:
        assert contestant.process is not None
        assert os.getsid(contestant.process.pid) == os.getsid(0)
        assert os.getpgid(contestant.process.pid) != os.getpgid(0)
    finally:
        contestant.end()
