"""Each worker as this gateway sees it: its own word, and what went there since. Pure."""

from paceline_core.registry.enums import RequestClass
from paceline_gateway.admin.sight import AdminSnapshot, PageQuery, paginate
from paceline_gateway.admin.views import Workers, WorkerView
from paceline_gateway.desk import ServiceState
from paceline_gateway.routing.worker import Worker


def workers(sight: AdminSnapshot, asked: PageQuery) -> Workers:
    """A page of workers, by service and name: `after` is both, with a space between."""
    every = ((desk, worker) for desk in asked.desks(sight) for worker in desk.fleet)
    part = paginate(every, lambda pair: f"{pair[0].key} {pair[1].name}", asked)
    return Workers(
        gateway=sight.gateway,
        time=sight.time,
        total=part.total,
        truncated=part.truncated,
        workers=tuple(_worker(sight, desk, worker) for desk, worker in part.items),
    )


def _worker(sight: AdminSnapshot, desk: ServiceState, worker: Worker) -> WorkerView:
    now, report, endpoint = sight.now, worker.report, worker.endpoint
    return WorkerView(
        service=desk.key,
        worker=worker.name,
        pool=endpoint.pool,
        revision=endpoint.revision,
        track=endpoint.track,
        address="{}:{}".format(*worker.address),
        state=desk.fleet.standing(worker, now),
        reported=report.state if report else None,
        emulated=bool(report and report.emulated),
        slots=report.slots if report else None,
        share=worker.share,
        open_slots=worker.ramped(now) if report else 0,
        in_flight=worker.in_flight,
        running=report.running if report else None,
        waiting=sum(report.waiting.values()) if report else None,
        taken=worker.taken,
        backlog_tokens=worker.backlog,
        backlog_by_class=dict(zip(RequestClass, worker.backlogs, strict=True)),
        backlog_s=round(worker.backlog_s, 4),
        kv_tokens=worker.kv_tokens,
        kv_total=worker.kv_total,
        circuit=worker.breaker.state(now),
        pause_s=round(max(worker.breaker.until - now, 0.0), 3),
        prefix_bytes=desk.fleet.prefixes.bytes_of(worker.name),
        heard_s_ago=round(now - worker.heard, 3) if report else None,
    )
