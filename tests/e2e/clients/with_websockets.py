"""A WebSocket conversation by the Python library websockets, which finds the proxy in the environment."""

import asyncio
import json
import sys

import websockets


async def main():
    try:
        async with websockets.connect(sys.argv[1], max_size=None) as socket:
            message = "x" * 100_000
            await socket.send(message)
            echoed = await socket.recv()
            return {"echoed": echoed == message}
    except websockets.exceptions.InvalidProxyStatus as error:
        return {"failed": str(error)}


print(json.dumps(asyncio.run(main())))
