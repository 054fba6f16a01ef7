"""Azure AI Evaluation, asked through the judges of holodeck."""
