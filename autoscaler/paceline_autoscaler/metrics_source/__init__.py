"""Sources of SLO attainment: Prometheus, or the autoscaler's own scrapes; six answers either way."""

from paceline_autoscaler.metrics_source.base import (
    Empty,
    Error,
    ErrorKind,
    HistogramQuantile,
    Increase,
    MetricSample,
    MetricsSource,
    NaN,
    Partial,
    Query,
    QueryAnswer,
    Stale,
    Value,
    cause_of,
    observed,
    promql,
    verdicts,
)
from paceline_autoscaler.metrics_source.prometheus import PrometheusSource
from paceline_autoscaler.metrics_source.scraper import ScrapeSource

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
