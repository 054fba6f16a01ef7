"""What files hold about whole runs: records, baselines, comparisons."""
