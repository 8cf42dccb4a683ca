"""Rows about what a service runs on: its workers, and what they cost."""

from tools.dashboards.panels import Panel, Query, Row, View
from tools.dashboards.scoped import mean, percentiles, quantile_of, rate, ratio, total

_NONE = "No worker"


def worker_row() -> Row:
    """Scheduler, KV pages and the engine itself."""
    return Row("Workers", (*_scheduler(), *_kv(), *_engine()))


def _scheduler() -> tuple[Panel, ...]:
    return (
        Panel(
            "Running and waiting",
            "Requests that hold KV pages, those that wait in the workers, by class, and those that wait for pages from "
            "disk before that.",
            "Waiting at workers while the gateway's queue is empty: slots are wider than the engine.",
            "none",
            (
                Query(total("paceline_scheduler_running_requests"), "running"),
                Query(total("paceline_scheduler_waiting_requests", ("class",)), "waiting {{class}}"),
                Query(total("paceline_kv_loading_requests"), "loading"),
            ),
            "PacelineQueueHeadOfLine", empty=_NONE,
        ),
        Panel(
            "Batch",
            "Mean requests in a step, and mean tokens of a step by kind.",
            "Many prefill tokens beside decodes slow TPOT; few requests in a step are idle capacity.",
            "none",
            (
                Query(mean("paceline_scheduler_batch_requests"), "requests"),
                Query(mean("paceline_scheduler_batch_tokens", ("kind",)), "{{kind}} tokens"),
            ),
            "PacelineTPOTBurnFast",
        ),
        Panel(
            "Step time",
            "Time of one engine step.",
            "It is the lower bound of TPOT; p99 over the promised TPOT cannot keep it.",
            "s", percentiles("paceline_scheduler_step_seconds"), "PacelineTPOTBurnFast",
        ),
    )  # fmt: skip


def _kv() -> tuple[Panel, ...]:
    by_state, pages = total("paceline_kv_pages", ("state",)), total("paceline_kv_pages")
    shares = f"{by_state} / ignoring (state) group_left () ({pages} > 0)"
    hits = ratio(rate("paceline_prefix_hit_tokens_total"), rate("paceline_prefix_lookup_tokens_total"))
    return (
        Panel(
            "KV pages",
            "Share of the KV pages that are free, in use, and cached but free to take.",
            "active near 100 %: requests are about to be put back.",
            "percentunit", (Query(shares, "{{state}}"),), "PacelineKVPressure", View.STACK, empty=_NONE,
        ),
        Panel(
            "Prefix cache hits",
            "Share of looked-up prompt tokens that were already computed.",
            "A fall without a change of traffic: evictions, or routing that scatters prefixes.",
            "percentunit", (Query(hits, "tokens"),), "PacelineTTFTBurnSlow",
        ),
        Panel(
            "Preempted and evicted",
            "Requests put back and cached pages given up, per second.",
            "Preemptions above 0.1/s waste the work already done; evictions alone are normal under load.",
            "none",
            (
                Query(rate("paceline_scheduler_preemptions_total"), "preempted"),
                Query(rate("paceline_kv_evicted_pages_total"), "pages evicted"),
            ),
            "PacelineKVPressure", empty=_NONE,
        ),
    )  # fmt: skip


def _engine() -> tuple[Panel, ...]:
    fitted, taken = rate("paceline_step_time_predicted_seconds_total"), rate("paceline_scheduler_step_seconds_sum")
    bias = f"{ratio(fitted, taken)} - 1"
    return (
        Panel(
            "Cold start",
            "Time of each stage of the slowest worker's start.",
            "Their sum is how long the autoscaler must look ahead; a stage that grew names its cause.",
            "s", (Query(total("paceline_cold_start_seconds", ("stage",), how="max"), "{{stage}}"),),
            "PacelineScaleStuck", View.STACK, empty=_NONE,
        ),
        Panel(
            "Engine health",
            "Engines that crashed or hung (per second), and the longest silence of an engine; spans lost "
            "on their way to the collector (per second).",
            "A silence that grows ends in a restart; its requests get an error. Lost spans cost requests nothing.",
            "none",
            (
                Query(rate("paceline_engine_restarts_total"), "restarts"),
                Query(total("paceline_engine_heartbeat_age_seconds", how="max"), "silence, s"),
                Query(rate("paceline_trace_dropped_spans_total"), "spans lost"),
            ),
            "PacelineEngineRestarts", empty=_NONE,
        ),
        Panel(
            "Grammars and bodies",
            "Grammars of structured output that were checked, by how it ended (per second), and how many wait; "
            "bytes of request bodies that are being read.",
            "Those ended for time or memory do harm or are far too large; `full`: a tenant sends many new "
            "ones at once.",
            "none",
            (
                Query(rate("paceline_worker_grammar_checks_total", ("result",)), "{{result}}"),
                Query(total("paceline_worker_grammar_checks_waiting"), "waiting"),
                Query(f"{total('paceline_worker_body_bytes')} * 1e-6", "bodies, MB"),
            ),
            "PacelineEngineRestarts", empty=_NONE,
        ),
        Panel(
            "Step time model, p95 error",
            "How far the fitted step-time model is off, and how late emulated steps end (p95); how long it takes steps "
            "to be in all, less what they were (bias). Shares of the step.",
            "The autoscaler counts capacity with this model. Emulated lateness above 5 % voids a measurement.",
            "percentunit",
            (
                Query(quantile_of(0.95, "paceline_step_time_residual_ratio"), "fit", quiet=True),
                Query(quantile_of(0.95, "paceline_emulated_step_lateness_ratio"), "emulated, late", quiet=True),
                Query(bias, "bias", quiet=True),
            ),
            "PacelineAutoscalerSignalsMissing", empty="No steps",
        ),
    )  # fmt: skip


def cost_row() -> Row:
    """Dollars an hour, and for a million tokens."""
    spent = rate("paceline_cost_dollars_total")
    tokens = rate("paceline_request_tokens_sum", (), {"kind": "~input|output"})
    return Row(
        "Cost",
        (
            Panel(
                "Cost per hour",
                "Price of the replicas that are there.",
                "Follows replicas, not traffic.",
                "currencyUSD", (Query(f"3600 * {spent}", "$/h"),), "PacelineScaleClampedAtMax", width=12,
                empty="No autoscaler",
            ),
            Panel(
                "Cost per million tokens",
                "Price of the replicas over the tokens read and written in the same time.",
                "High: replicas idle, or batches are small. Without traffic there is no such number.",
                "currencyUSD", (Query(f"1e6 * {ratio(spent, tokens)}", "$/1M"),), width=12,
            ),
        ),
    )  # fmt: skip
