"""The gateway's state of each service: its spec, workers, queues and demand."""
