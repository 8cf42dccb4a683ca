"""Tenants' use of this month, its cost, and what their monthly budgets leave. Pure."""
