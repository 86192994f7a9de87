"""The HTTP API: /v1 routes, authentication, errors as problem+json. Uses core and store. Run by api_process."""
