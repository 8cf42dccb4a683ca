"""A row about the engines themselves: what they have queued, what they do twice, where their memory goes."""

from tools.dashboards.panels import Panel, Query, Row, View
from tools.dashboards.scoped import mean, rate, ratio, total

_NONE = "No worker"


def engine_row() -> Row:
    """Backlog, work lost and saved, memory beside the device, and requests as a worker sees them."""
    return Row("Engines", (*_backlog(), *_memory(), *_requests()))


def _backlog() -> tuple[Panel, ...]:
    return (
        Panel(
            "Backlog, seconds",
            "Predicted time until the worst worker has computed the prompts that are queued there, by class.",
            "Above the promised TTFT, new requests will be late; it falls by itself when a replica is added.",
            "s", (Query(total("paceline_scheduler_backlog_seconds", ("class",), how="max"), "{{class}}"),),
            "PacelineQueueHeadOfLine", empty=_NONE,
        ),
        Panel(
            "Backlog, tokens",
            "Prompt tokens yet to compute, by class, and the age of the oldest waiting request.",
            "Tokens, not requests, are the backlog: one long prompt weighs as much as a hundred short ones.",
            "none",
            (
                Query(total("paceline_scheduler_waiting_uncached_tokens", ("class",)), "{{class}} tokens"),
                Query(total("paceline_scheduler_oldest_wait_seconds", how="max"), "oldest, s"),
            ),
            "PacelineQueueHeadOfLine", empty=_NONE,
        ),
        Panel(
            "Not served",
            "Requests that engines refused or gave up, per second: no place in the queue, no time left, too late.",
            "crowded: the queue's limit. backlog: a deadline that could not be kept. deadline: one that was not.",
            "reqps", (Query(rate("paceline_scheduler_shed_requests_total", ("reason",)), "{{reason}}"),),
            "PacelineAvailabilityBurnFast", empty=_NONE,
        ),
        Panel(
            "Batch window, mean",
            "What steps that waited for company waited in the mean.",
            "It is part of TTFT. Shorter windows give smaller batches.",
            "s", (Query(mean("paceline_scheduler_batch_window_seconds"), "waited"),), empty="No step waited",
        ),
    )  # fmt: skip


def _memory() -> tuple[Panel, ...]:
    idle = ratio(rate("paceline_kv_evicted_idle_seconds_total"), rate("paceline_kv_evicted_pages_total"))
    fragmentation, overcommit = (
        ratio(total(f"paceline_kv_{name}_bytes"), total("paceline_kv_capacity_bytes"))
        for name in ("fragmentation", "overcommit")
    )
    return (
        Panel(
            "Work lost and saved",
            "Tokens per second computed again after a preemption, and tokens brought back instead.",
            "Lost tokens above a tenth of the prompts read: fewer requests at once, or more memory.",
            "none",
            (
                Query(rate("paceline_scheduler_recomputed_tokens_total"), "computed again"),
                Query(rate("paceline_kv_restored_tokens_total"), "brought back"),
            ),
            "PacelineKVPressure", empty=_NONE,
        ),
        Panel(
            "Idle at eviction, mean",
            "How long evicted pages had been unused.",
            "Seconds: prefixes are given up before they are asked for again. Hours: there is memory to spare.",
            "s", (Query(idle, "unused", quiet=True),), "PacelineTTFTBurnSlow", empty="No evictions",
        ),
        Panel(
            "Fragmentation and overcommit",
            "Share of the KV memory that requests hold and no token fills; and what running ones are predicted to lack "
            "at their peak.",
            "Fragmentation is high with short requests: smaller pages would hold more. Overcommit ends in preemptions.",
            "percentunit", (Query(fragmentation, "fragmentation"), Query(overcommit, "overcommit")),
            "PacelineKVPressure", empty=_NONE,
        ),
        Panel(
            "Pages beside the device",
            "Bytes of KV pages in host memory and on disk.",
            "Flat at its limit is normal: the least used go.",
            "bytes",
            (
                Query(total("paceline_kv_host_bytes"), "host"),
                Query(total("paceline_kv_disk_bytes"), "disk"),
            ),
            empty=_NONE,
        ),
        Panel(
            "Swap",
            "Bytes per second between the device and host memory, and between that and disk.",
            "out without in is memory spent for nothing; in beside preemptions is work that is not done twice.",
            "Bps", (Query(rate("paceline_kv_swap_bytes_total", ("tier", "direction")), "{{tier}} {{direction}}"),),
            "PacelineKVPressure", empty=_NONE,
        ),
    )  # fmt: skip


def _requests() -> tuple[Panel, ...]:
    phase = "paceline_worker_phase_seconds"
    return (
        Panel(
            "Time in the worker by phase, mean",
            "Where the mean request spent its time once a worker had it.",
            "The same at the gateway and here: look at the engine. More at the gateway: its queue, or the network.",
            "s", (Query(mean(phase, ("phase",)), "{{phase}}"),), "PacelineTTFTBurnFast", View.STACK,
        ),
        Panel(
            "Tokens at workers",
            "Tokens per second of begun requests: prompts, those of them found cached, and output.",
            "Output far above the gateway's count: streams are resumed, or clients leave.",
            "none", (Query(rate("paceline_worker_tokens_total", ("kind",)), "{{kind}}"),), empty=_NONE,
        ),
        Panel(
            "How choices end",
            "Choices that ended, per second, by finish reason.",
            "error is a fault of the engine; abort is a client that left, or a deadline; much length: limits are low.",
            "reqps", (Query(rate("paceline_worker_sequences_total", ("finish",)), "{{finish}}"),),
            "PacelineAvailabilityBurnFast", View.STACK, empty=_NONE,
        ),
    )  # fmt: skip
