"""Where the measured promise comes from: Prometheus, or our own scrapes; six answers either way."""

from paceline_autoscaler.source.answers import (
    Answer,
    Empty,
    Error,
    ErrorKind,
    MetricsSource,
    NaN,
    Partial,
    Sample,
    Stale,
    Value,
    cause_of,
)
from paceline_autoscaler.source.embedded import EmbeddedSource
from paceline_autoscaler.source.prometheus import PrometheusSource
from paceline_autoscaler.source.questions import Growth, Quantile, Question, observed, promql, verdicts

__all__ = [
    "Answer",
    "EmbeddedSource",
    "Empty",
    "Error",
    "ErrorKind",
    "Growth",
    "MetricsSource",
    "NaN",
    "Partial",
    "PrometheusSource",
    "Quantile",
    "Question",
    "Sample",
    "Stale",
    "Value",
    "cause_of",
    "observed",
    "promql",
    "verdicts",
]
