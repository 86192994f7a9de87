"""The shapes of answers, described for /openapi.json: one module per noun, each model with an example.

They describe only: the routes write their answers themselves, and a test measures those against these models.
"""
