"""What tenants have used this month, what it cost, and what their monthly budgets leave. Pure."""
