"""The user's Python code: what may be named, what it imports, and where it failed."""
