"""From files and variables to models."""
