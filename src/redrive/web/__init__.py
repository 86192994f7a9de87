"""The pages that people see in a browser. Each is a dataclass handed to a template; what they do goes through the API.

site.py puts it together; pages/<noun>.py load and render, templates/<noun>.html show, static/ holds our scripts and
styles, charts/ draws SVG. Read from here: a page's way is pages → store → render → templates.
"""
