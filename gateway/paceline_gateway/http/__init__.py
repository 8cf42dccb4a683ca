"""HTTP/1.1 at protocol level on both sides: httptools parses, everything here is limits, time and back-pressure."""
