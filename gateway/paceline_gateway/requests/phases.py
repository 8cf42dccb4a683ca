"""Where a request's time went. The phases sum to its end-to-end time.

The gateway knows admit, its own queue, and how long the worker's side took; the worker reports its part. `network` is
the rest: both clocks only ever measure their own differences. Without a report (a foreign engine, a lost worker) the
time to the first token counts as prefill and the rest as decode.
"""

from paceline_core.registry.enums import Phase
from paceline_gateway.requests.nouns import Record, WorkerPhases


def phases(record: Record) -> dict[Phase, float]:
    """Seconds by phase; empty if the request never reached a worker."""
    if record.queued is None or record.sent is None:
        return {}
    upstream = record.ended - record.sent
    worker = record.meter.worker or _guess(record, upstream)
    return {
        Phase.ADMIT: record.queued - record.received,
        Phase.TOKENIZE: worker.tokenize,
        Phase.QUEUE: record.sent - record.queued + worker.queue,
        Phase.BATCH_WAIT: worker.batch_wait,
        Phase.PREFILL: worker.prefill,
        Phase.DECODE: worker.decode,
        Phase.POST: worker.post,
        Phase.NETWORK: max(upstream - worker.total, 0.0),
    }


def _guess(record: Record, upstream: float) -> WorkerPhases:
    before = upstream if record.first is None or record.sent is None else record.first - record.sent
    return WorkerPhases(prefill=before, decode=upstream - before)
