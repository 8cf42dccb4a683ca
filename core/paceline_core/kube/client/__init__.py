"""A lean client of a Kubernetes API server: requests with a time limit, watches that resume; plain data in and out."""
