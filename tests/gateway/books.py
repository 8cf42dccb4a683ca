"""What a gateway holds, as its own metrics tell: all of it must be given back, whatever happened."""

from collections.abc import Mapping

from tests.gateway.stand import Stand, until

HELD = (
    "paceline_requests_in_flight",
    "paceline_queue_requests",
    "paceline_queue_bytes",
    "paceline_queue_tenants",
    "paceline_held_requests",
    "paceline_quota_reserved_tokens",
    "paceline_quota_waiting_requests",
    "paceline_gateway_request_body_bytes",
)


async def held(stand: Stand) -> dict[str, float]:
    """Requests, places in lines, bytes, reservations, and what its workers have in flight."""
    shown = {name: await stand.metric(name) for name in HELD}
    workers = [worker for service in stand.process.registry.services.values() for worker in service.pool]
    shown["in flight at workers"] = sum(worker.in_flight for worker in workers)
    shown["prompt tokens at workers"] = sum(sum(worker.unbegun_tokens) for worker in workers)
    shown["calls"], shown["busy connections"] = stand.process.requests.open, stand.process.server.busy
    shown["reserved"] = sum(stand.process.requests.quotas.totals.open)
    return shown


async def balanced(stand: Stand, requests: Mapping[str, int]) -> None:
    """Wait until nothing is held; then so many requests have ended in each way, and no others."""

    async def nothing() -> bool:
        return not any((await held(stand)).values())

    try:
        await until(nothing)
    except TimeoutError:
        raise AssertionError({name: value for name, value in (await held(stand)).items() if value}) from None
    counted = {outcome: await stand.metric("paceline_requests_total", outcome=outcome) for outcome in requests}
    assert counted == requests
    assert await stand.metric("paceline_requests_total") == sum(requests.values())
