"""The quota counters that several gateways share, and the exchange of lease requests and grants with them."""
