"""Whether a status is kept current: what is said of the Leases of operator and autoscaler."""

from datetime import UTC, datetime
from typing import Any

import pytest

from paceline_cli.kube.services import absent

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def lease(holder: str, renewed: str | None) -> dict[str, Any]:
    return {"spec": {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15}}


def test_a_lease_that_is_held_and_renewed_is_not_spoken_of() -> None:
    held = lease("pod-1", "2026-01-31T11:59:50.000000Z")
    assert absent({"operator": held, "autoscaler": held}, "paceline-system", NOW) == []


@pytest.mark.parametrize("holder", ["", "pod-1"])
def test_a_lease_that_was_given_back_or_is_no_longer_renewed_says_since_when(holder: str) -> None:
    old = lease(holder, "2026-01-31T11:57:00.000000Z")
    assert absent({"operator": old}, "paceline-system", NOW) == [
        "no operator holds its Lease since 3m; statuses may be old"
    ]


def test_a_lease_given_back_just_now_is_told_at_once() -> None:
    assert absent({"operator": lease("", None)}, "s", NOW) == ["no operator holds its Lease; statuses may be old"]


def test_a_lease_that_is_not_there_names_the_namespace_and_the_option() -> None:
    (line,) = absent({"autoscaler": None}, "elsewhere", NOW)
    assert "no autoscaler has a Lease in elsewhere" in line
    assert "--system-namespace" in line
