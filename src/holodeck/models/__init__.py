"""What agents, test cases, results and reports consist of: frozen data."""

RENDERERS: dict[str, str] = {}
"""What a report can become → the function that makes it. The package adds them when it is imported,
because models import nothing that uses them."""
