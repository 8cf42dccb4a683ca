"""`kubectl paceline`: commands for a cluster, with the user's own kubeconfig and permissions.

It uses only the API server, so it can do nothing that the user could not do with kubectl.
"""
