"""Tools an agent may call, in one shape."""
