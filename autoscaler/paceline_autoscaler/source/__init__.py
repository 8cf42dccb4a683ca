"""Where the measured promise comes from: Prometheus, or our own scrapes; six answers either way."""

from paceline_autoscaler.source.answers import (
    Empty,
    Error,
    ErrorKind,
    MetricSample,
    MetricsSource,
    NaN,
    Partial,
    QueryAnswer,
    Stale,
    Value,
    cause_of,
)
from paceline_autoscaler.source.embedded import ScrapeSource
from paceline_autoscaler.source.prometheus import PrometheusSource
from paceline_autoscaler.source.questions import HistogramQuantile, Increase, Query, observed, promql, verdicts

__all__ = [
    "Empty",
    "Error",
    "ErrorKind",
    "HistogramQuantile",
    "Increase",
    "MetricSample",
    "MetricsSource",
    "NaN",
    "Partial",
    "PrometheusSource",
    "Query",
    "QueryAnswer",
    "ScrapeSource",
    "Stale",
    "Value",
    "cause_of",
    "observed",
    "promql",
    "verdicts",
]
