"""Our tools as Semantic Kernel sees them."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from semantic_kernel.filters.filter_types import FilterTypes
from semantic_kernel.functions import FunctionResult, KernelFunctionFromMethod, kernel_function
from semantic_kernel.functions.kernel_parameter_metadata import KernelParameterMetadata

from holodeck.errors import ConfigError
from holodeck.lib.backends.arguments import parse_arguments
from holodeck.lib.backends.semantic_kernel.calls import PLUGIN, current_call
from holodeck.lib.tools.base import Tool, run_tool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from semantic_kernel import Kernel
    from semantic_kernel.filters.auto_function_invocation.auto_function_invocation_context import (
        AutoFunctionInvocationContext,
    )


def add_tools(kernel: "Kernel", tools: Sequence[Tool]) -> None:
    """Let the kernel's model call the tools under their plain names."""
    if not tools:
        return
    by_name = {tool.name: tool for tool in tools}
    for tool in tools:
        kernel.add_function(plugin_name=PLUGIN, function=_as_function(tool))
        added = kernel.get_function(PLUGIN, tool.name)
        added.metadata.plugin_name = None  # else the model reads "tools-<name>"

    @kernel.filter(FilterTypes.AUTO_FUNCTION_INVOCATION)
    async def run(
        context: "AutoFunctionInvocationContext",
        next: "Callable[[Any], Awaitable[None]]",  # noqa: A002, ARG001 - SK passes it by this name
    ) -> None:
        """Runs the tool with the very arguments of the call, and keeps what became of it."""
        tool = by_name[context.function.name]
        wanted = context.function_call_content
        assert wanted is not None  # noqa: S101 - set by every invocation of a model's
        arguments, error = parse_arguments(wanted.arguments)
        if error is None:
            call = current_call.get()
            async with call.tool_slots if call is not None else nullcontext():
                run = await run_tool(tool, arguments, call_id=wanted.id)
            if call is not None and wanted.id is not None:
                call.tool_runs[wanted.id] = run
        told = run.result_text if error is None else f"Error: {error}"
        context.function_result = FunctionResult(function=context.function.metadata, value=told)


def _as_function(tool: Tool) -> KernelFunctionFromMethod:
    @kernel_function(name=tool.name, description=tool.description)
    async def call(**arguments: Any) -> str:
        return (await run_tool(tool, arguments)).result_text

    return KernelFunctionFromMethod(method=call, plugin_name=PLUGIN, parameters=_parameters(tool))


def _parameters(tool: Tool) -> list[KernelParameterMetadata]:
    required = set(tool.parameters.get("required", []))
    return [
        _parameter(tool, name, schema, is_required=name in required)
        for name, schema in tool.parameters.get("properties", {}).items()
    ]


def _parameter(
    tool: Tool, name: str, schema: dict[str, Any], *, is_required: bool
) -> KernelParameterMetadata:
    if name == "settings":  # Semantic Kernel takes an argument of this name for its own
        raise ConfigError(f"tool {tool.name}", "rename the parameter 'settings', say to 'options'")
    return KernelParameterMetadata(name=name, schema_data=schema, is_required=is_required)
