"""A row about the gateways of a service: waiting and refused requests, resumed streams, ejected workers."""

from tools.dashboards.panels import Panel, Query, Row, View
from tools.dashboards.scoped import percentiles, rate, total

_NONE = "No gateway"


def gateway_row() -> Row:
    """Fair queues, streams that changed workers, and what routing knows."""
    return Row("Gateways", (*_queues(), *_streams(), *_routing()))


def _queues() -> tuple[Panel, ...]:
    return (
        Panel(
            "Shed and overtaken",
            "Requests shed per second, and those sent ahead because they starved.",
            "tenant_share and displaced are one tenant's own doing; anything else asks for replicas.",
            "reqps",
            (
                Query(rate("paceline_queue_shed_total", ("class", "reason")), "{{class}} {{reason}}", quiet=True),
                Query(rate("paceline_queue_starvation_promotions_total", ("class",)), "{{class}} promoted", quiet=True),
            ),
            "PacelineAvailabilityBurnFast", empty="None",
        ),
        Panel(
            "Tenants waiting",
            "Tenants with requests in a class queue, and slots that are left free for interactive requests.",
            "Many tenants in a line share it by weight; slots kept are what batch must not take.",
            "none",
            (
                Query(total("paceline_queue_tenants", ("class",)), "{{class}}", quiet=True),
                Query(total("paceline_queue_reserved_slots"), "slots reserved", quiet=True),
            ),
            "PacelineQueueHeadOfLine", empty=_NONE,
        ),
        Panel(
            "Service gap between tenants",
            "Tokens between the most and the least served of the tenants that wait, over their weights.",
            "It stays within a few requests' tokens; growing without end would be unfair.",
            "none",
            (Query(total("paceline_queue_fairness_gap_tokens", ("class",), how="max"), "{{class}}", quiet=True),),
            "PacelineQueueHeadOfLine", empty=_NONE,
        ),
    )  # fmt: skip


def _streams() -> tuple[Panel, ...]:
    return (
        Panel(
            "Streams moved",
            "Streams per second that went on at another worker, and those that could not, each by reason.",
            "Moved streams are whole for their clients; any that was cut is a broken answer.",
            "reqps",
            (
                Query(rate("paceline_stream_resumed_total", ("reason",)), "resumed: {{reason}}", quiet=True),
                Query(rate("paceline_stream_aborted_total", ("reason",)), "aborted: {{reason}}", quiet=True),
            ),
            "PacelineAvailabilityBurnFast", empty="None",
        ),
        Panel(
            "Pause of moved streams",
            "From the last token of one worker to the first of the next, as the client sees it.",
            "It is the prefill of all that was said, and a wait for room.",
            "s", percentiles("paceline_stream_resume_gap_seconds", quiet=True), empty="None",
        ),
        Panel(
            "Worker crashes",
            "Workers and engines per second that ended without a word; requests that two of them died of, by tenant.",
            "Some of both: that tenant's requests kill workers. Workers alone: memory, devices or nodes.",
            "reqps",
            (
                Query(rate("paceline_worker_deaths_total"), "workers", quiet=True),
                Query(rate("paceline_isolated_requests_total", ("tenant",)), "of {{tenant}}", quiet=True),
            ),
            "PacelineRequestIsolated", empty="None",
        ),
        Panel(
            "Fallbacks",
            "Requests per second that a route sent on from this service to its next one, by reason.",
            "Lasting overloaded, queue_full or timeout: too few replicas; unavailable or error: its workers fail.",
            "reqps", (Query(rate("paceline_fallback_requests_total", ("reason",)), "{{reason}}", quiet=True),),
            empty="None",
        ),
        Panel(
            "Degraded answers",
            "Answers per second that a smaller model gave, or that had fewer tokens, while the promise was not kept.",
            "Lasting: replicas are missing. Their verdicts have the label degraded in paceline_slo_requests_total.",
            "reqps",
            (Query(rate("paceline_degraded_requests_total", ("class", "kind")), "{{class}} {{kind}}", quiet=True),),
            empty="None",
        ),
    )  # fmt: skip


def _routing() -> tuple[Panel, ...]:
    return (
        Panel(
            "Circuit breakers",
            "Workers by the state of their circuit breaker, over all gateways.",
            "open: it failed and rests; half_open: one request tries it.",
            "none", (Query(total("paceline_upstream_circuit_breakers", ("circuit",)), "{{circuit}}", quiet=True),),
            "PacelineAvailabilityBurnFast", View.STACK, empty=_NONE,
        ),
        Panel(
            "Queue and prefix index memory",
            "Bytes of bodies that wait, by class, and of what gateways remember of workers' caches.",
            "Both are capped; at its cap the index forgets what was used least recently.",
            "bytes",
            (
                Query(total("paceline_queue_bytes", ("class",)), "{{class}}", quiet=True),
                Query(total("paceline_prefix_index_bytes"), "prefix index", quiet=True),
            ),
            empty=_NONE,
        ),
    )  # fmt: skip
