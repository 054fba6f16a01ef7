"""Judge models, and statistics of how verdicts agree."""
