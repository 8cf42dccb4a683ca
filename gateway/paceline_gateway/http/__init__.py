"""HTTP/1.1 at protocol level on both sides: httptools parses; this package adds limits, time and back-pressure."""
