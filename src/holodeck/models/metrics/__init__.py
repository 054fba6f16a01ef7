"""Settings of metrics, and what checks of judges have shown."""
