"""The admin port: health and metrics, the demand stream, what this gateway sees and counts, its drain and its log."""
