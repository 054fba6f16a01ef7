"""Sources of tools that need nothing, which note when they are opened and closed."""

from holodeck.lib.tools.base import Tool, ToolReply


class NotedSource:
    """Opens with one tool of its name, or fails with `error`."""

    def __init__(self, config, context):
        self.config = config
        self.notes = config.notes

    async def open(self):
        if self.config.error is not None:
            raise self.config.error
        self.notes.append(f"open {self.config.name}")

        async def call(arguments):
            return ToolReply("two chunks", passages=("one", "two"))

        return [Tool(self.config.name, "", {"type": "object"}, call, source="noted")]

    async def close(self):
        self.notes.append(f"close {self.config.name}")
