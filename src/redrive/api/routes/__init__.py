"""The routes behind the guard, one module per noun."""
