"""`paceline plan` and `quote`: what a service needs to keep its promise, from arithmetic alone."""
