"""paceline / Autoscaler & operator: what they see, what they decide, whether they can carry it out."""

from paceline_core.registry.metrics import SERVICE
from tools.dashboards.decisions import decisions
from tools.dashboards.panels import Board, Panel, Query, Row, View, tile
from tools.dashboards.scoped import percentiles, quantile_of, rate, ratio, select, total

_WHO = "{{pisvc_namespace}}/{{pisvc}}"
_GONE, _OFF = "No autoscaler", "No operator"
_SIGNAL = "paceline_autoscaler_signal"
_RECONCILE = "paceline_operator_reconcile_seconds"


def board() -> Board:
    """The board of the two controllers."""
    return Board(
        "paceline-control",
        "paceline / Autoscaler & operator",
        "What the autoscaler saw, decided and why; whether the operator keeps up with the objects.",
        ("pisvc_namespace", "pisvc"),
        (_alive(), _decisions(), _sight(), _operator()),
        decisions(),
    )


def _alive() -> Row:
    last = total("paceline_autoscaler_last_success_timestamp_seconds", how="max")
    return Row(
        "Health",
        (
            tile(
                "Last evaluation", "Since the autoscaler last looked at every service.",
                "Above a minute it is stalled; replicas then stay as they are.", "s",
                (Query(f"time() - {last}", "ago"),), "PacelineAutoscalerStalled", steps=((0.0, "green"), (60.0, "red")),
            ),
            tile(
                "Oldest signal", "Age of the oldest signal of any service.",
                "Above a minute the autoscaler is blind there and scales nothing down.", "s",
                (Query(total("paceline_autoscaler_signal_age_seconds", how="max"), "age"),),
                "PacelineAutoscalerSignalsMissing", steps=((0.0, "green"), (60.0, "red")), empty="No signal",
            ),
            tile(
                "Replicas missing", "Replicas that are wanted and not ready, of all pools.",
                "Above 0 for longer than a cold start: something keeps pods from starting.", "none",
                (Query(total("paceline:replicas_missing:count"), "missing"),),
                "PacelineScaleStuck", steps=((0.0, "green"), (1.0, "orange")), empty=_GONE,
            ),
            tile(
                "Operator leads", "Operators that hold the Lease.",
                "0: no edit is carried out. 2 for more than a moment: clocks or the API server are broken.", "none",
                (Query(total("paceline_operator_leader"), "leaders"),),
                "PacelineOperatorNoLeader", steps=((0.0, "red"), (1.0, "green"), (2.0, "red")), empty=_OFF,
            ),
            tile(
                "Operator's queue", "Objects that wait for a reconcile.",
                "A queue that does not empty: the API server is slow or the request budget too small.", "none",
                (Query(total("paceline_operator_queue_depth"), "waiting"),),
                "PacelineOperatorReconcileErrors", empty=_OFF,
            ),
            tile(
                "Watch silence", "Since the quietest watch of the operator last received a byte.",
                "Above 330 s the operator decides on an old picture.", "s",
                (Query(total("paceline_operator_watch_age_seconds", how="max"), "silent"),),
                "PacelineOperatorWatchStale", steps=((0.0, "green"), (330.0, "red")), empty=_OFF,
            ),
        ),
    )  # fmt: skip


def _decisions() -> Row:
    pool = (*SERVICE, "pool")
    states = tuple(
        Query(
            total("paceline_autoscaler_replicas", pool, {"state": state}, "max"), f"{_WHO} {{{{pool}}}} {state}",
        )
        for state in ("desired", "ready", "starting", "draining")
    )  # fmt: skip
    made = rate("paceline_autoscaler_decisions_total", ("direction", "reason"))
    clamped = rate("paceline_autoscaler_limited_total", ("limit",))
    failed = rate("paceline_autoscaler_actuation_errors_total", SERVICE)
    flips = f"max by ({', '.join(pool)}) (changes({select('paceline_autoscaler_replicas', {'state': 'desired'})}[30m]))"
    return Row(
        "Decisions",
        (
            Panel(
                "Replicas by state",
                "Replicas of each pool: wanted, ready, starting, draining.",
                "ready below desired for longer than a cold start: see the pods' events.",
                "none", states, "PacelineScaleStuck", width=12, empty=_GONE,
            ),
            Panel(
                "Decisions",
                "Decisions per second by direction and reason; every pass over a service makes one.",
                "hold/steady is the rule. missing_data: it does not see. pending: what was ordered has not come yet.",
                "none", (Query(made, "{{direction}}: {{reason}}"),), "PacelineAutoscalerSignalsMissing", View.STACK, 12,
                empty=_GONE,
            ),
            Panel(
                "Decisions held by a limit",
                "Decisions per second that a limit kept from what they wanted.",
                "max while the promise burns: raise replicas.max or shed a class. rate passes by itself.",
                "none", (Query(clamped, "{{limit}}", quiet=True),), "PacelineScaleClampedAtMax", empty="Never",
            ),
            Panel(
                "Direction changes",
                "How often the wanted number of each pool changed within 30 minutes.",
                "High, with replicas going up and down: the policy hunts.",
                "none", (Query(flips, f"{_WHO} {{{{pool}}}}"),), "PacelineAutoscalerFlapping", empty=_GONE,
            ),
            Panel(
                "Failed scale writes",
                "Writes of a replica number that the API server refused or lost.",
                "Above 0: permissions, a quota, or another client writes the same field.",
                "none", (Query(failed, _WHO, quiet=True),), "PacelineScaleStuck", empty="None",
            ),
        ),
    )  # fmt: skip


def _sight() -> Row:
    demand, capacity = (total(_SIGNAL, SERVICE, {"signal": signal}, "max") for signal in ("demand", "capacity"))
    results = rate("paceline_autoscaler_query_results_total", ("result",))
    work = tuple(
        Query(total(_SIGNAL, SERVICE, {"signal": signal}, "max"), f"{_WHO} {signal}")
        for signal in ("demand", "backlog")
    )
    current = tuple(
        Query(total(f"paceline_{part}_watch_synced", ("kind",), how="min"), f"{part} {{{{kind}}}}")
        for part in ("gateway", "autoscaler")
    )
    return Row(
        "Signals",
        (
            Panel(
                "Demand over capacity",
                "Work that arrives over the work that the ready replicas can do within the promise.",
                "At 1 they are full; above it a backlog grows until replicas come.",
                "percentunit", (Query(ratio(demand, capacity), _WHO),), "PacelineTTFTBurnFast",
                steps=((0.0, "green"), (0.8, "orange"), (1.0, "red")),
            ),
            Panel(
                "Work",
                "Demand in replica-seconds a second, and backlog in replica-seconds.",
                "Backlog over the number of ready replicas is how many seconds they are behind.",
                "none", work, "PacelineQueueHeadOfLine",
            ),
            Panel(
                "Burn rate at the autoscaler",
                "The worst burn in the autoscaler's own short window.",
                "It adds a replica above 1; the alerts' burn over 1 hour follows more slowly.",
                "none", (Query(total(_SIGNAL, SERVICE, {"signal": "burn"}, "max"), _WHO, quiet=True),),
                "PacelineTTFTBurnFast",
            ),
            Panel(
                "Age of signals",
                "How old what the autoscaler knows is, by signal.",
                "gateways is the demand stream, attainment the metrics source.",
                "s",
                (Query(total("paceline_autoscaler_signal_age_seconds", ("signal",), how="max"), "{{signal}}"),),
                "PacelineAutoscalerSignalsMissing", empty="No signal",
            ),
            Panel(
                "Metric query results",
                "Answers per second by result.",
                "empty and nan are idle services; error, partial and stale are a Prometheus in trouble.",
                "none", (Query(results, "{{result}}"),), "PacelineAutoscalerSignalsMissing", View.STACK, empty=_GONE,
            ),
            Panel(
                "Watch caches current",
                "1 while what gateways and autoscalers know of a kind of object is current, the least of all pods.",
                "0: that process lost the API server and goes on with the last it knew.",
                "none", current, "PacelineAutoscalerSignalsMissing", empty="No gateway, no autoscaler",
            ),
            Panel(
                "Evaluation time",
                "How long the autoscaler takes to look at every service and decide.",
                "Above its interval it falls behind.",
                "s", percentiles("paceline_autoscaler_reconcile_seconds"), "PacelineAutoscalerStalled", empty=_GONE,
            ),
        ),
    )  # fmt: skip


def _operator() -> Row:
    errors = rate("paceline_operator_reconcile_errors_total", ("kind", "reason"))
    age = total("paceline_operator_watch_age_seconds", ("kind",), how="max")
    return Row(
        "Operator",
        (
            Panel(
                "Reconciles",
                "Reconciles per second by kind.", "Steadily high without edits: something flaps or is fought over.",
                "none", (Query(rate(f"{_RECONCILE}_count", ("kind",)), "{{kind}}"),),
                "PacelineOperatorReconcileErrors", empty=_OFF,
            ),
            Panel(
                "Time of a reconcile, p95",
                "From taking a key to its last write.", "High: the API server is slow, or the request budget is spent.",
                "s", (Query(quantile_of(0.95, _RECONCILE, ("kind",)), "{{kind}}"),),
                "PacelineOperatorReconcileErrors", empty="No reconciles",
            ),
            Panel(
                "Reconcile errors",
                "Failed reconciles per second by kind and reason.",
                "The reason is also a condition on the object that failed.",
                "none", (Query(errors, "{{kind}}: {{reason}}", quiet=True),),
                "PacelineOperatorReconcileErrors", empty="None",
            ),
            Panel(
                "Oldest queued object",
                "How long the object that waits longest has waited.", "High: deletions and scale-ups go first.",
                "s", (Query(total("paceline_operator_queue_oldest_seconds", how="max"), "oldest"),),
                "PacelineOperatorReconcileErrors", empty=_OFF,
            ),
            Panel(
                "Writes",
                "Write requests per second to the API server.", "Nothing changes, so nothing is written: 0 is right.",
                "none",
                (Query(rate("paceline_operator_writes_total", ("verb", "kind")), "{{verb}} {{kind}}", quiet=True),),
                "PacelineOperatorReconcileErrors", View.STACK, empty="None",
            ),
            Panel(
                "Watch silence by kind",
                "Since each watch last received a byte; the API server sends one at least about every minute.",
                "A line that only climbs is a watch that hangs.",
                "s", (Query(age, "{{kind}}"),), "PacelineOperatorWatchStale", empty=_OFF,
            ),
        ),
    )  # fmt: skip
