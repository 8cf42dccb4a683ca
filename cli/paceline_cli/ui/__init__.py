"""`paceline top`: what the gateways see, read again and again, as tables. Reading, reckoning and drawing are apart."""
