"""Files of a test case, as text."""
