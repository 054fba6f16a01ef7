"""YAML with the position of each value, and messages that name it."""
