"""Run every test case, grade it, report it."""
