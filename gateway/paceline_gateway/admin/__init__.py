"""The admin port: health, metrics, the demand stream, views of this gateway's state, its drain and its log level."""
