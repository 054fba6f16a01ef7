"""The settings of metrics, one family a module."""
