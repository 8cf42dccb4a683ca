"""paceline / Tenants: use, cost and limits of each tenant."""

from tools.dashboards.alerts import UNSTORED_S
from tools.dashboards.decisions import decisions
from tools.dashboards.panels import Board, Panel, Query, Row, tile
from tools.dashboards.scoped import percentiles, rate, total

_NONE = "No gateway"
_OVERFLOW = "PacelineTenantLabelOverflow"


def board() -> Board:
    """The board of the tenants."""
    return Board(
        "paceline-tenants",
        "paceline / Tenants",
        "What each tenant asks for, uses and costs; whether its limits are counted with the other gateways.",
        ("pisvc_namespace", "pisvc", "class"),
        (_use(), _limits(), _clients()),
        decisions(),
    )


def _use() -> Row:
    used = total("paceline_tenant_budget_ratio", ("tenant", "kind"), how="max")
    charged = rate("paceline_usage_tokens_total", ("tenant", "kind"))
    dollars = f"3600 * {rate('paceline_usage_dollars_total', ('tenant',))}"
    return Row(
        "Use",
        (
            Panel(
                "Requests",
                "Requests per second by tenant and outcome, of all services.",
                "`_none` had no valid key, `_other` are tenants beyond the first 200.",
                "reqps",
                (Query(rate("paceline_tenant_requests_total", ("tenant", "outcome")), "{{tenant}} {{outcome}}"),),
                _OVERFLOW,
            ),
            Panel(
                "Tokens",
                "Tokens per second by tenant, of all services.",
                "Input is cheap where prompts begin alike.",
                "none", (Query(rate("paceline_tenant_tokens_total", ("tenant", "kind")), "{{tenant}} {{kind}}"),),
            ),
            Panel(
                "Budget used",
                "Share of the month's budget that is used, by all gateways together.",
                "At 1 the tenant is refused with `insufficient_quota` until the month ends.",
                "percentunit", (Query(used, "{{tenant}} {{kind}}", quiet=True),),
                steps=((0.0, "green"), (0.8, "orange"), (1.0, "red")), empty="No budgets",
            ),
            Panel(
                "Requests charged",
                "Requests per second that were charged, by tenant, of the chosen services and classes.",
                "Refused requests and those no worker could answer are not charged.",
                "reqps", (Query(rate("paceline_usage_requests_total", ("tenant",)), "{{tenant}}", quiet=True),),
            ),
            Panel(
                "Tokens charged",
                "Tokens per second that were charged, by tenant and kind, of the chosen services and classes.",
                "Limits per minute and budgets count these.",
                "none", (Query(charged, "{{tenant}} {{kind}}", quiet=True),),
            ),
            Panel(
                "Cost per hour",
                "Replica-seconds that the chosen services' requests took, times the price of the replicas.",
                "Idle capacity is charged to no tenant: compare with the service's cost.",
                "currencyUSD", (Query(dollars, "{{tenant}}", quiet=True),),
            ),
        ),
    )  # fmt: skip


def _limits() -> Row:
    return Row(
        "Limits",
        (
            tile(
                "Shared counters", "1 while the counters that gateways share answer, the least of all.",
                "0: each gateway serves its own share of the limits, or refuses, as the tenant says.", "none",
                (Query(total("paceline_quota_store_up", how="min"), "current", quiet=True),),
                steps=((0.0, "red"), (1.0, "green")), empty="Not shared",
            ),
            tile(
                "Gateways", "Gateways among which limits are shared, as the one that sees fewest has it.",
                "Fewer than there are: they count apart.", "none",
                (Query(total("paceline_quota_gateways", how="min"), "sharing", quiet=True),), empty=_NONE,
            ),
            tile(
                "Unsaved usage, age", "Age of the oldest use that is not in a Tenant's status.",
                "Above two minutes the API server is away; what is not stored is lost with its gateway.", "s",
                (Query(total("paceline_usage_checkpoint_age_seconds", how="max"), "oldest", quiet=True),),
                "PacelineUsageNotStored", steps=((0.0, "green"), (float(UNSTORED_S), "red")), empty=_NONE,
            ),
            tile(
                "Tenants counted", "Tenants whose limits some gateway is counting.", "Idle ones are let go of.", "none",
                (Query(total("paceline_quota_tracked_tenants", how="max"), "accounts", quiet=True),), empty=_NONE,
            ),
            tile(
                "Samples without a tenant label", "Samples per second of tenants that have no label of their own.",
                "Above 0: more than 200 tenants; the rest share `_other`.", "none",
                (Query(rate("paceline_tenant_label_overflow_total"), "folded"),), _OVERFLOW,
            ),
            Panel(
                "Reserved",
                "Tokens set aside for open requests.",
                "It falls to 0 with the last open request; what stays has leaked.",
                "none", (Query(total("paceline_quota_reserved_tokens", ("kind",)), "{{kind}}", quiet=True),),
                empty=_NONE,
            ),
            Panel(
                "Shared counter round trip",
                "Time of an exchange with the shared counters.",
                "A request waits for it only where its gateway's slice is used up.",
                "s", percentiles("paceline_quota_sync_seconds", quiet=True), empty="Not shared",
            ),
            Panel(
                "Shared counter waits and errors",
                "Requests that wait for the shared counters; failed exchanges and requests admitted without, a second.",
                "Lent requests are counted when the counters are back.",
                "none",
                (
                    Query(total("paceline_quota_waiting_requests"), "waiting", quiet=True),
                    Query(rate("paceline_quota_sync_failures_total"), "failed", quiet=True),
                    Query(rate("paceline_quota_fallback_requests_total"), "lent", quiet=True),
                ),
                empty="Not shared",
            ),
        ),
    )  # fmt: skip


def _clients() -> Row:
    return Row(
        "Clients",
        (
            Panel(
                "Connections",
                "Open connections of clients, over all gateways.",
                "Many more than open requests: clients that keep what they do not use.",
                "none", (Query(total("paceline_gateway_connections", ("kind",)), "{{kind}}", quiet=True),), empty=_NONE,
            ),
            Panel(
                "Bodies in memory",
                "Bytes of requests that gateways hold, those of the fullest gateway.",
                "At `limits.memory_bytes` new bodies are refused with 503.",
                "bytes", (Query(total("paceline_gateway_request_body_bytes", how="max"), "bytes", quiet=True),),
                empty=_NONE,
            ),
            Panel(
                "Limits on clients",
                "How often gateways bounded what clients share, per second: memory, connections, the loop's time.",
                "Above 0 for long: a client sends more than it may, or `limits` are too low; see the access log.",
                "none",
                (Query(rate("paceline_gateway_limited_total", ("limit",)), "{{limit}}", quiet=True),),
                empty=_NONE,
            ),
            Panel(
                "Lost telemetry",
                "Log lines that gateways could not write and spans that they could not send, per second.",
                "Above 0: the log is not read fast enough, or the collector is away. No request waits for either.",
                "none",
                (
                    Query(rate("paceline_gateway_log_dropped_lines_total"), "log lines", quiet=True),
                    Query(rate("paceline_gateway_trace_dropped_spans_total"), "spans", quiet=True),
                ),
                empty=_NONE,
            ),
        ),
    )  # fmt: skip
