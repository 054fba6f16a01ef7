"""Readers for the files of test cases; documents and images are read in a process of their own."""
