"""One conversation of the official MCP client with a server; runs in the client's own virtual environment.

Standard input: what to do, as JSON (`mcp.talk` writes it). Standard output: what came of it. The server's standard
error goes to the file named in "stderr".
"""

import asyncio
import json
import os
import sys
import time

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def talk(wanted, report):
    def lap(name, since):
        report["seconds"][name] = round(time.monotonic() - since, 4)

    server = StdioServerParameters(
        command=wanted["command"][0], args=wanted["command"][1:], env=wanted["env"], cwd=wanted["cwd"])
    began = time.monotonic()
    leaving = None
    with open(wanted["stderr"], "w", encoding="utf-8", errors="replace") as errors:
        async with stdio_client(server, errlog=errors) as (reading, writing):
            async with ClientSession(reading, writing) as session:
                greeting = await (session.discover() if wanted["modern"] else session.initialize())
                lap("handshake", began)
                report["greeting"] = greeting.model_dump(mode="json", by_alias=True, exclude_none=True)
                since = time.monotonic()
                listed = await session.list_tools()
                lap("tools/list", since)
                report["tools"] = [tool.name for tool in listed.tools]
                for call in wanted["calls"]:
                    since = time.monotonic()
                    answer = {"name": call["name"]}
                    try:
                        result = await session.call_tool(call["name"], call["arguments"])
                        answer["result"] = result.model_dump(mode="json", by_alias=True, exclude_none=True)
                    except Exception as error:
                        answer["error"] = str(error)
                    answer["seconds"] = round(time.monotonic() - since, 4)
                    report["calls"].append(answer)
            leaving = time.monotonic()
        # The client closes standard input, waits 2 s, sends SIGTERM to the process group, waits 2 s, and kills.
        lap("shutdown", leaving)
    lap("whole", began)


def main():
    wanted = json.load(sys.stdin)
    report = {"seconds": {}, "calls": [], "error": None}
    # The client hands its own six variables on; the server is to see those it was given alone.
    for name in ("HOME", "LOGNAME", "SHELL", "TERM", "USER"):
        os.environ.pop(name, None)
    try:
        asyncio.run(asyncio.wait_for(talk(wanted, report), wanted["timeout"]))
    except BaseException as error:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        report["error"] = f"{type(error).__name__}: {error}"
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main()
