"""An MCP server with the orders of a shop."""

from mcp.server.fastmcp import FastMCP

ORDERS = {7: "shipped to Oslo", 8: "waiting for payment"}

server = FastMCP("orders")


@server.tool()
def order_status(order: int) -> str:
    """The status of an order."""
    return f"Order {order} is {ORDERS.get(order, 'unknown')}."


if __name__ == "__main__":
    server.run()
