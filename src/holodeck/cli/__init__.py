"""The command line: one command a file; they parse, call and print."""
