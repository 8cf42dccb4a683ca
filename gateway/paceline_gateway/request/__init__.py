"""A request's life in the gateway, as plain data and one state machine. Pure: the simulator drives the same objects."""
