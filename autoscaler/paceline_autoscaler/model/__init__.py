"""What the policy decides on: the observation, the work it implies and the capacity of a replica. Pure."""
