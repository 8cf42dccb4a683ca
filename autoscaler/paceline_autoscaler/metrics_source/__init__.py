"""Sources of SLO attainment: Prometheus, or the autoscaler's own scrapes; six answers either way."""
