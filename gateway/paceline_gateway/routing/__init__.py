"""Which service a model name means, and which of its workers takes a request. Pure."""
