"""Settings of metrics, one family a module, and what checks of judges have shown."""
