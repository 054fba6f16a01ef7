"""Small models in the process: fetching, checking and running their weights."""
