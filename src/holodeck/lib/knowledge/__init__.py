"""Search in documents: reading, chunks, embeddings, ingestion, stores and the tools."""
