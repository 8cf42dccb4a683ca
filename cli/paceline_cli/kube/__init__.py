"""`kubectl paceline`: what a user asks of a cluster, with their own kubeconfig and their own rights.

It reads and writes through the API server alone, so it can do nothing that the user could not do with kubectl.
"""
