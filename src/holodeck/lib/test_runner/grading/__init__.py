"""How what was observed of a case becomes its result."""
