"""A request's states in the gateway, as plain data and one state machine. Pure: the simulator drives the same code."""
