"""Models that run in the process: where their weights come from, and how they are asked."""
