"""A lean client of a Kubernetes API server: requests with a limit each, watches that resume; plain data in and out."""
