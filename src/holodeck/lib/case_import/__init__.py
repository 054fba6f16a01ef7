"""Turns chat logs, transcripts, run records and promptfoo configurations into test cases."""
