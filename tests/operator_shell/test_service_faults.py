from hypothesis import given
from hypothesis import strategies as st

from paceline_core.errors import ApiError, Forbidden
from paceline_operator.controllers.conditions import ConditionFault, degraded, fault_of, same_conditions

TIME, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"
FAULT = ConditionFault("Forbidden", "cannot patch deployments")


def live(**extra: object) -> dict[str, object]:
    ready = {"type": "Ready", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": TIME}
    slo = {"type": "SLOMet", "status": "True", "reason": "S", "message": "m", "lastTransitionTime": TIME}
    return {
        "observedGeneration": 1,
        "workload": {"summary": "1/1"},
        "conditions": [ready, slo],
        "scaling": {"desired": 1},
        **extra,
    }


def test_a_fault_is_laid_over_what_the_operator_owns_and_nothing_else_is_written() -> None:
    status = degraded(live(), None, FAULT, TIME, 1)
    assert set(status) == {"observedGeneration", "workload", "conditions"}
    assert [one["type"] for one in status["conditions"]] == ["Ready", "Degraded"]


def test_the_same_fault_again_is_reported_already_and_keeps_its_time() -> None:
    first = degraded(live(), None, FAULT, TIME, 1)
    standing = live(**first)
    again = degraded(standing, None, FAULT, LATER, 1)
    assert same_conditions(standing, again)
    assert again["conditions"][-1]["lastTransitionTime"] == TIME


def test_the_summary_ends_in_the_fault_unless_the_object_is_not_accepted() -> None:
    assert degraded(live(), None, FAULT, TIME, 1)["workload"]["summary"] == "1/1 Forbidden"
    emulated = live(workload={"summary": "0/1 emulated CrashLoopBackOff"})
    assert degraded(emulated, None, FAULT, TIME, 1)["workload"]["summary"] == "0/1 emulated Forbidden"
    refused = {"type": "Accepted", "status": "False", "reason": "Invalid", "message": "m", "lastTransitionTime": TIME}
    assert degraded(live(conditions=[refused]), None, FAULT, TIME, 1)["workload"]["summary"] == "1/1 Invalid"
    assert "workload" not in degraded({}, None, FAULT, TIME, 1)


def test_another_fault_is_reported() -> None:
    standing = {**live(), "conditions": degraded(live(), None, FAULT, TIME, 1)["conditions"]}
    assert not same_conditions(standing, degraded(standing, None, ConditionFault("Invalid", "x"), LATER, 1))


def test_the_servers_words_are_kept_and_a_bug_is_named() -> None:
    words = 'User "op" cannot patch resource "deployments"'
    assert words in fault_of(Forbidden(403, "Forbidden", words), "apply X").message
    assert fault_of(ApiError(422, "Invalid", "spec: bad"), "apply X").reason == "Invalid"
    assert fault_of(KeyError("name"), "plan").reason == "Failed"


@given(st.text(max_size=5000))
def test_no_message_is_longer_than_a_condition_takes(words: str) -> None:
    assert len(fault_of(ApiError(422, "Invalid", words), "apply X").message) <= 1024
