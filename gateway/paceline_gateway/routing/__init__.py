"""Model lookup and the choice of a worker. Pure."""
