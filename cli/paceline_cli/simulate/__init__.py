"""`paceline simulate`: what scaling policies would make of a trace."""
