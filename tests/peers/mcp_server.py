"""A tool server on MCP's own SDK: `mcp_server.py DIRECTORY [PORT]`, with a port over streamable HTTP."""

import os
import pathlib
import signal
import sys

import anyio
from mcp.server.mcpserver import Image, MCPServer

here = pathlib.Path(sys.argv[1])
server = MCPServer("tests")


@server.tool()
def add(a: int, b: int) -> str:
    """Add two numbers."""
    with open(here / "added", "a") as added:
        added.write(f"{a} {b}\n")
    return str(a + b)


@server.tool()
def picture() -> Image:
    """A picture of one point."""
    return Image(data=b"\x89PNG", format="png")


@server.tool()
def fail() -> str:
    """Always goes wrong."""
    raise ValueError("it went wrong")


@server.tool()
async def wait() -> str:
    """Takes for ever."""
    (here / "waiting").touch()
    try:
        await anyio.sleep_forever()
    finally:
        (here / "cancelled").touch()
    return "never"


@server.tool()
def die() -> str:
    """Ends the server."""
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


if len(sys.argv) > 2:
    server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
else:
    server.run("stdio")
