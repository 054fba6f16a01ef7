"""Models that run in this process: catalog, downloads, store, runtime and chat."""
