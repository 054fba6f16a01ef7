"""What stands in for tools while a test case runs."""
