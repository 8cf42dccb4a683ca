"""What is asked of a metrics source. A question is data; each source has its own way to answer it.

`promql` gives the text for Prometheus. The two sources agree except that PromQL's `increase` extrapolates to the edges
of its window, which leaves shares and quantiles as they are and moves counts by at most one scrape interval's worth.
"""

from dataclasses import dataclass

VERDICTS = "paceline_slo_requests_total"
HISTOGRAMS = {
    "ttft": "paceline_request_ttft_seconds",
    "tpot": "paceline_request_tpot_seconds",
    "e2e": "paceline_request_duration_seconds",
}


@dataclass(frozen=True, slots=True)
class Increase:
    """How much a counter grew over the window, summed by labels."""

    metric: str
    match: tuple[tuple[str, str], ...]
    by: tuple[str, ...]
    window_s: float


@dataclass(frozen=True, slots=True)
class HistogramQuantile:
    """A quantile of a histogram's observations in the window, by labels; NaN where there were none."""

    metric: str
    match: tuple[tuple[str, str], ...]
    by: tuple[str, ...]
    window_s: float
    quantile: float


Query = Increase | HistogramQuantile


def verdicts(namespace: str, name: str, window_s: float) -> Increase:
    """Requests of a service judged good or bad, by class and target."""
    return Increase(VERDICTS, _service(namespace, name), ("class", "slo", "verdict"), window_s)


def observed(namespace: str, name: str, metric: str, quantile: float, window_s: float) -> HistogramQuantile:
    """What a latency quantile was, by class; `metric` is ttft, tpot or e2e."""
    return HistogramQuantile(HISTOGRAMS[metric], _service(namespace, name), ("class",), window_s, quantile)


def promql(question: Query) -> str:
    """The question as a PromQL expression."""
    window = f"[{round(question.window_s * 1000)}ms]"
    match question:
        case Increase():
            return f"sum by ({', '.join(question.by)}) (increase({selector(question)}{window}))"
        case HistogramQuantile():
            by = ", ".join((*question.by, "le"))
            return f"histogram_quantile({question.quantile}, sum by ({by}) (rate({selector(question)}{window})))"


def series(question: Query) -> str:
    """The name of the series that the question reads."""
    return f"{question.metric}_bucket" if isinstance(question, HistogramQuantile) else question.metric


def selector(question: Query) -> str:
    """The PromQL selector of those series, label values escaped."""
    matchers = ",".join(f'{name}="{_escape(value)}"' for name, value in question.match)
    return f"{series(question)}{{{matchers}}}"


def _service(namespace: str, name: str) -> tuple[tuple[str, str], ...]:
    return (("pisvc_namespace", namespace), ("pisvc", name))


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
