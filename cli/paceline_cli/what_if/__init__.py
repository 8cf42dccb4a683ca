"""`what-if`: what another promise or more requests would make of the traffic that a service has had."""
