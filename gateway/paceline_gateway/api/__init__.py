"""The public port: which route a request takes, who asks, and whether it is admitted."""
