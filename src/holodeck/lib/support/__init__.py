"""Small helpers that need nothing of holodeck but its errors."""
