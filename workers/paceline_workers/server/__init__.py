"""The worker's API process: HTTP and text on one side, the engine's tokens on the other. It never imports torch."""
