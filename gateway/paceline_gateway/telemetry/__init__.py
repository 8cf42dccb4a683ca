"""What the gateway says about itself: its rows of the metric registry, and one log line a request."""
