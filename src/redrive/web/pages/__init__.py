"""One module per page (or per noun with its list and its detail): what it loads, and its dataclass."""
