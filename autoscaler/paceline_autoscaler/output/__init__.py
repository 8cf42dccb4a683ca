"""The outputs of a decision: replicas written to the scale, Events, the service's status and the decision log."""
