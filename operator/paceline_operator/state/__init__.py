"""What the operator has observed of the cluster, and the queue of services to reconcile."""
