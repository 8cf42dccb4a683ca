"""paceline / Service: is the promise kept, where does time go, is there enough of everything."""

from tools.dashboards.decisions import decisions
from tools.dashboards.engine_rows import engine_row
from tools.dashboards.gateway_rows import gateway_row
from tools.dashboards.panels import Board, Panel, Query, Row, View, tile
from tools.dashboards.promql import TARGET
from tools.dashboards.scoped import mean, percentiles, promised, quantile_of, rate, ratio, total
from tools.dashboards.worker_rows import cost_row, worker_row

_CALM, _WARN, _BAD = "green", "orange", "red"
BURN_STEPS = ((0.0, _CALM), (1.0, _WARN), (6.0, _BAD))
_SLO = "{{class}} {{slo}}"
_FAILED = {"outcome": "~shed|upstream_error|stream_error|timeout"}


def board() -> Board:
    """The board of one or more services."""
    return Board(
        "paceline-service",
        "paceline / Service",
        "Whether a service keeps its promise, where its requests spend their time, and what it runs on.",
        ("pisvc_namespace", "pisvc", "class"),
        (_verdict(), _promise(), _latency(), _traffic(), gateway_row(), worker_row(), engine_row(), cost_row()),
        decisions(),
    )


def _verdict() -> Row:
    ready, desired = (total("paceline_autoscaler_replicas", (), {"state": state}) for state in ("ready", "desired"))
    failed = ratio(rate("paceline_requests_total", (), _FAILED), rate("paceline_requests_total"))
    return Row(
        "Overview",
        (
            tile(
                "Burn, 1 h",
                "How fast the worst promise spends its budget of misses.",
                "Above 1 the budget does not last its window; a page comes at 14.4 (less where that cannot happen).",
                "none", (Query(total("paceline:slo_burn:ratio1h", how="max"), "worst"),),
                runbook="PacelineTTFTBurnFast", steps=BURN_STEPS,
            ),
            tile(
                "Kept, 1 h",
                "Share of requests that met the target that was missed most.",
                "Compare with the objective in the table below; low is bad.",
                "percentunit", (Query(f"1 - {total('paceline:slo_bad:ratio1h', how='max')}", "worst"),),
                runbook="PacelineErrorBudgetTicket",
            ),
            tile(
                "Failed",
                "Share of requests that were shed, cut, timed out or failed upstream.",
                "Anything above 0 costs availability; a 200 that was cut counts too.",
                "percentunit", (Query(failed, "failed"),),
                runbook="PacelineAvailabilityBurnFast", steps=((0.0, _CALM), (0.001, _WARN), (0.01, _BAD)),
            ),
            tile(
                "Requests",
                "Requests that ended, per second.", "0 is an idle service, or a gateway that no client reaches.",
                "reqps", (Query(rate("paceline_requests_total"), "ended"),),
            ),
            tile(
                "Replicas",
                "Replicas that are ready, and that are wanted.",
                "Fewer ready than wanted for minutes: see cold start, then the service's events.",
                "none", (Query(ready, "ready"), Query(desired, "desired")),
                runbook="PacelineScaleStuck", empty="No autoscaler",
            ),
            tile(
                "Oldest wait",
                "Age of the request that has waited longest in a class queue.",
                "Above the promised TTFT that request has already missed it.",
                "s", (Query(total("paceline_queue_oldest_wait_seconds", how="max"), "oldest"),),
                runbook="PacelineQueueHeadOfLine", empty="No gateway",
            ),
        ),
    )  # fmt: skip


def _promise() -> Row:
    columns = {
        "paceline:slo_objective:ratio": "objective",
        "paceline:slo_bad:ratio5m": "bad 5m",
        "paceline:slo_bad:ratio1h": "bad 1h",
        "paceline:slo_burn:ratio1h": "burn 1h",
        "paceline:slo_burn:ratio6h": "burn 6h",
        "paceline:slo_judged:increase1h": "judged 1h",
    }
    table = tuple(Query(total(name, TARGET, how="max"), legend) for name, legend in columns.items())
    burns = tuple(
        Query(total(f"paceline:slo_burn:ratio{window}", ("class", "slo"), how="max"), f"{_SLO} {window}")
        for window in ("5m", "1h")
    )
    shares = (
        Query(total("paceline:slo_bad:ratio1h", ("class", "slo"), how="max"), f"{_SLO} 1h"),
        Query(total("paceline:slo_fast:ratio", ("class", "slo"), how="min"), f"page {_SLO}", quiet=True),
    )
    return Row(
        "Promise",
        (
            Panel(
                "Promises",
                "Each target with its objective, the share of requests that missed it, and how fast its budget burns.",
                "A burn above 1 breaks the promise if it lasts; judged says how many requests stand behind a share.",
                "none", table, "PacelineErrorBudgetTicket", View.TABLE, 24, 8,
            ),
            Panel(
                "Burn rate",
                "Share of misses over the share that the objective leaves room for, over 5 minutes and 1 hour.",
                "1 spends the budget in exactly its window; the two windows together decide on a page.",
                "none", burns, "PacelineTTFTBurnFast", width=12, steps=BURN_STEPS,
            ),
            Panel(
                "Bad share and page limit",
                "Share of requests of the last hour that missed each target, and the share that pages.",
                "Over its page line, with ten bad requests or more, an alert pages on-call.",
                "percentunit", shares, "PacelineTTFTBurnSlow", width=12,
            ),
        ),
    )  # fmt: skip


def _latency() -> Row:
    bucket = "paceline_request_ttft_seconds_bucket"
    phase = "paceline_request_phase_seconds"
    return Row(
        "Latency",
        (
            Panel(
                "TTFT",
                "Time to first token of streams, from the body read to the first content flushed.",
                "Dashed lines are promised: p95 over the p95 line means a broken promise.",
                "s", (*percentiles("paceline_request_ttft_seconds"), promised("ttft")), "PacelineTTFTBurnFast",
            ),
            Panel(
                "TPOT",
                "Mean time per output token of each stream, after its first.",
                "High: batches too large, long prefills between decodes, or a slow device.",
                "s", (*percentiles("paceline_request_tpot_seconds"), promised("tpot")), "PacelineTPOTBurnFast",
            ),
            Panel(
                "End to end",
                "Body read to last byte flushed, of requests that ended well.",
                "Grows with the length of answers too; compare with TTFT and TPOT before drawing conclusions.",
                "s", (*percentiles("paceline_request_duration_seconds"), promised("e2e")), "PacelineE2EBurnFast",
            ),
            Panel(
                "TTFT, all requests",
                "How many first tokens came within each bucket of time.",
                "Two bands are two kinds of requests, such as cached and uncached prompts.",
                "s", (Query(rate(bucket, ("le",)), "{{le}}"),), "PacelineTTFTBurnFast", View.HEATMAP,
            ),
            Panel(
                "Time by phase, mean",
                "Where the mean request spent its time; the phases add up to end to end.",
                "queue: too few replicas. prefill: long prompts or cold prefixes. network: look at the gateway.",
                "s", (Query(mean(phase, ("phase",)), "{{phase}}"),), "PacelineTTFTBurnFast", View.STACK,
            ),
            Panel(
                "Time by phase, p95",
                "The slowest twentieth of each phase; these do not add up.",
                "A phase whose p95 is far above its mean has outliers: look for one bad worker.",
                "s", (Query(quantile_of(0.95, phase, ("phase",)), "{{phase}}"),), "PacelineTTFTBurnSlow",
            ),
            Panel(
                "Gap between tokens",
                "Inter-token latency: gap between chunks over the tokens of the chunk.",
                "A p99 far above p50 is a stutter that TPOT's mean hides.",
                "s", percentiles("paceline_stream_itl_seconds"), "PacelineTPOTBurnSlow",
            ),
        ),
    )  # fmt: skip


def _traffic() -> Row:
    retries = ratio(rate("paceline_retries_total"), rate("paceline_requests_total"))
    arrived, written = {"kind": "arrived"}, {"kind": "~prompt|output"}
    return Row(
        "Traffic",
        (
            Panel(
                "Outcomes",
                "How requests ended, per second.",
                "Everything but ok, quota, client_error and cancelled costs availability.",
                "reqps", (Query(rate("paceline_requests_total", ("outcome",)), "{{outcome}}"),),
                "PacelineAvailabilityBurnFast", View.STACK,
            ),
            Panel(
                "Tokens",
                "Tokens per second: read, written, and found in the prefix cache.",
                "Written tokens are what replicas are needed for; cached ones cost next to nothing.",
                "none", (Query(rate("paceline_request_tokens_sum", ("kind",)), "{{kind}}"),),
            ),
            Panel(
                "Demand",
                "Requests that arrive, and the tokens of their prompts and answers, per second.",
                "What arrives is demand, shed or not; the autoscaler counts its work, and history is made of it.",
                "none",
                (
                    Query(rate("paceline_demand_requests_total", ("class",), arrived), "{{class}} requests"),
                    Query(rate("paceline_demand_tokens_total", ("class", "kind"), written), "{{class}} {{kind}}"),
                ),
            ),
            Panel(
                "Open requests",
                "Requests in flight at the gateway, and held because no worker is ready.",
                "Held above 0 for more than a cold start: the service does not wake.",
                "none",
                (
                    Query(total("paceline_requests_in_flight"), "in flight"),
                    Query(total("paceline_held_requests"), "held"),
                ),
                "PacelineServiceDown", empty="No gateway",
            ),
            Panel(
                "Queue",
                "Requests that wait in each class queue, and the queue's cap.",
                "At its cap a queue sheds: those requests get 503.",
                "none",
                (
                    Query(total("paceline_queue_requests", ("class",)), "{{class}}"),
                    Query(total("paceline_queue_capacity_requests", ("class",)), "cap {{class}}"),
                ),
                "PacelineQueueHeadOfLine", empty="No gateway",
            ),
            Panel(
                "Workers as the gateway sees them",
                "Workers by what the gateway may expect of them, mean over gateways.",
                "silent: its load stream is cut. failed: it refused or broke connections lately.",
                "none", (Query(total("paceline_upstream_workers", ("state",), how="avg"), "{{state}}"),),
                "PacelineServiceDown", View.STACK, empty="No gateway",
            ),
            Panel(
                "Retries",
                "Dispatches that were repeated on another worker before the first byte.",
                "Above 0: workers die or refuse. Clients see nothing of it until the retry budget is spent.",
                "percentunit", (Query(retries, "retries per request"),), "PacelineAvailabilityBurnSlow",
            ),
        ),
    )  # fmt: skip
