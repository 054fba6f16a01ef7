"""Connections to MCP servers, of any transport; the only door to the mcp SDK."""
