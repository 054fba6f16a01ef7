"""The mutation study of files: one slip in a file whose agent has one fault must not end green."""
