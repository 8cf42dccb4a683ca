"""A tenant's limits per minute and on concurrent requests. Pure: `quota_store` does the I/O to the shared store."""
