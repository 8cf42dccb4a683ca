"""What a tenant may use per minute and at once. Pure: the store of several gateways is spoken to elsewhere."""
