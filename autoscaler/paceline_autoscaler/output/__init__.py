"""What a decision becomes: a scale that is written, events, the service's status and the decision log."""
