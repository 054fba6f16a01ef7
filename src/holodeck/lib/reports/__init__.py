"""Reports of a run: summary, costs, Markdown, JSON, and how they are written to files."""
