"""The page at /docs: /openapi.json as people read it, written here. No script, nothing from elsewhere.

page: the whole page; tables: fields of schemas; markup: escaping. Served by routes.docs.
"""
