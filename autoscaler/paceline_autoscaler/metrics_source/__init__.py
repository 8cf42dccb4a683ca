"""Sources of SLO attainment: Prometheus, or the autoscaler's own scrapes; both give one of six kinds of answer."""
