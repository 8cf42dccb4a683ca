"""What a tenant may use per minute and at once. Pure; one gateway's own counters."""
