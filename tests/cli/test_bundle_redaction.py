"""What a bundle must not hold is taken out wherever it stands; what support needs stays."""

import json
from typing import Any

from tests.every import cases

from paceline_cli.kube.bundle.redact import HIDDEN, Redactor

CANARY = 'canary "with" quotes'
POD: dict[str, Any] = {
    "metadata": {
        "name": "chat-main-1",
        "annotations": {
            "paceline.dev/pause-until": "2026-01-31T14:00:00Z",
            "kubectl.kubernetes.io/last-applied-configuration": json.dumps({"env": CANARY}),
            "team.example.com/note": "annotation-canary",
        },
        "managedFields": [{"manager": "kubectl"}],
    },
    "spec": {
        "containers": [
            {
                "name": "worker",
                "image": "registry.example.com/worker:1",
                "args": ["--model=/models/llama", "--api-key", "argument-canary", "--api-key=flag-canary"],
                "command": ["python", "-m", "paceline_workers.main"],
                "env": [
                    {"name": "HF_TOKEN", "value": CANARY},
                    {"name": "PIN", "value": "1234"},
                    {"name": "PACELINE_LOG_LEVEL", "value": "INFO"},
                    {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "key"}}},
                ],
                "livenessProbe": {"httpGet": {"httpHeaders": [{"name": "authorization", "value": "header-canary"}]}},
            }
        ]
    },
    "status": {"phase": "Running", "message": "exec failed: flag-canary"},
}
ROUTE = {
    "spec": {
        "matches": [{"headers": {"x-team": "match-canary"}}],
        "filters": [{"name": "words", "config": {"key": "filter-canary"}}],
    }
}
CANARIES = (
    "canary",  # every one of them
    "1234",
    "/models/llama",
)


def redactor() -> Redactor:
    found = Redactor()
    found.learn([[POD], None, [ROUTE]])
    return found


def test_no_value_that_a_user_wrote_stays_in_an_object() -> None:
    text = redactor().objects([POD, ROUTE])
    assert not [canary for canary in CANARIES if canary in text]


def test_what_support_needs_stays() -> None:
    (pod,) = json.loads(redactor().objects([POD]))
    container = pod["spec"]["containers"][0]
    assert container["image"] == "registry.example.com/worker:1"
    assert container["args"] == [f"--model={HIDDEN}", "--api-key", HIDDEN, f"--api-key={HIDDEN}"]
    assert container["command"] == [HIDDEN, "-m", "paceline_workers.main"]
    assert container["env"][0] == {"name": "HF_TOKEN", "value": HIDDEN}
    assert container["env"][2] == {"name": "PACELINE_LOG_LEVEL", "value": "INFO"}
    assert container["env"][3]["valueFrom"]["secretKeyRef"]["name"] == "keys"
    assert pod["metadata"]["annotations"]["paceline.dev/pause-until"] == "2026-01-31T14:00:00Z"
    assert pod["status"]["phase"] == "Running"
    assert "managedFields" not in pod["metadata"]


def test_a_log_that_prints_its_environment_loses_the_values() -> None:
    log = f"starting with HF_TOKEN={CANARY}\n" + json.dumps({"message": f"env {CANARY}", "flag": "flag-canary"})
    assert "canary" not in redactor().log(log)


def test_a_log_line_loses_what_could_be_a_prompt() -> None:
    line = json.dumps({"level": "info", "message": "refused", "request": {"messages": [{"content": "private"}]}})
    found = json.loads(redactor().log(line))
    assert found["message"] == "refused"
    assert "private" not in json.dumps(found)


@cases(
    ("text", "clean"),
    [
        ("key pl_abcdefgh_" + "a" * 32, f"key pl_{HIDDEN}"),
        ("Authorization: Bearer abcdefghijkl", f"Authorization: {HIDDEN} {HIDDEN}"),
        ("x-paceline-internal-token: abc.def.ghi more", f"x-paceline-internal-token: {HIDDEN} more"),
        ("token eyJhbGciOiJFZERTQSJ9.eyJhdWQi.c2ln end", f"token {HIDDEN} end"),
        ("https://user:pass@prometheus.example.com/x", f"https://{HIDDEN}@prometheus.example.com/x"),
        ("hf_abcdefghijklmnop and sk-abcdefghijklmnop", f"{HIDDEN} and {HIDDEN}"),
        ("-----BEGIN PRIVATE KEY-----\nMIIabc\n-----END PRIVATE KEY-----\nnext", f"{HIDDEN}\nnext"),
        ("-----BEGIN PRIVATE KEY-----\nMIIabc", HIDDEN),
        ("ttft p95 420/500ms, 3 replicas", "ttft p95 420/500ms, 3 replicas"),
    ],
)
def test_keys_and_tokens_are_known_by_their_form(text: str, clean: str) -> None:
    assert Redactor().text(text) == clean


def test_short_values_and_numbers_are_hidden_in_their_place_alone() -> None:
    found = Redactor()
    found.learn([{"env": [{"name": "MODE", "value": "fast"}, {"name": "SIZE", "value": "12345678901"}]}])
    assert found.text("fast 12345678901") == "fast 12345678901"


def test_a_value_that_names_an_object_is_hidden_in_its_place_alone() -> None:
    """Helm writes its release's name into an annotation: that is no secret, and every name holds it."""
    pod: dict[str, Any] = {
        "metadata": {
            "name": "paceline-gateway-1",
            "namespace": "paceline-system",
            "labels": {"app.kubernetes.io/instance": "paceline"},
            "annotations": {
                "meta.helm.sh/release-name": "paceline",
                "meta.helm.sh/release-namespace": "paceline-system",
            },
        },
        "spec": {"containers": [{"args": ["--namespace=paceline-system", "--token=token-canary"]}]},
    }
    found = Redactor()
    found.learn([None, [pod]])
    [clean] = json.loads(found.objects([pod]))
    assert clean["metadata"] == pod["metadata"] | {"annotations": dict.fromkeys(pod["metadata"]["annotations"], HIDDEN)}
    assert clean["spec"]["containers"][0]["args"] == [f"--namespace={HIDDEN}", f"--token={HIDDEN}"]
    assert (
        found.log("paceline-system/paceline-gateway-1 token-canary") == f"paceline-system/paceline-gateway-1 {HIDDEN}"
    )
