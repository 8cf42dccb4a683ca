"""What the gateway knows of each service, its workers and its demand."""
