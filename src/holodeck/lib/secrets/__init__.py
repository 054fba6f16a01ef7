"""What a secret looks like, and how texts are freed of secrets."""
