"""Where a request's time went. The phases sum to its end-to-end time.

The gateway knows admit, its own queue, and how long the worker's side took; the worker reports its part. `network` is
the rest: both clocks only ever measure their own differences. Without a report (a foreign engine, a lost worker) the
time to the first token counts as prefill and the rest as decode. Of a stream that went on elsewhere, each worker's part
counts as that, and what lies between them as queue.
"""

from paceline_core.registry.enums import Phase
from paceline_gateway.requests.nouns import RequestRecord, WorkerPhases

ADMIT, TOKENIZE, QUEUE, BATCH_WAIT, PREFILL, DECODE, POST, NETWORK = Phase


def phases(record: RequestRecord) -> dict[Phase, float]:
    """Seconds by phase; empty if the request was not let into the queue."""
    if record.queued is None:
        return {}
    waited = record.waited
    if record.sent is None or waited is None:
        return {ADMIT: record.queued - record.received, QUEUE: record.ended - record.queued}
    upstream = record.ended - record.sent
    worker = record.meter.worker or _guess(record, upstream)
    return {
        ADMIT: record.queued - record.received,
        TOKENIZE: worker.tokenize,
        QUEUE: waited + worker.queue,
        BATCH_WAIT: worker.batch_wait,
        PREFILL: worker.prefill + record.earlier.prefill,
        DECODE: worker.decode + record.earlier.decode,
        POST: worker.post,
        NETWORK: max(upstream - worker.total, 0.0),
    }


def _guess(record: RequestRecord, upstream: float) -> WorkerPhases:
    begun = record.again if record.resumed else record.first
    if begun is None or record.sent is None or begun < record.sent:
        return WorkerPhases(prefill=upstream)
    return WorkerPhases(prefill=begun - record.sent, decode=record.ended - begun)
