"""The public port: routes, authentication and admission of requests."""
