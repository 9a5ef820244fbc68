"""An origin that echoes WebSocket messages: wss on one port, ws on another."""

import asyncio
import ssl
import sys

import websockets


async def echo(socket):
    async for message in socket:
        await socket.send(message)


async def main():
    address, secure_port, plain_port, certificate = sys.argv[1:]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    async with (
        websockets.serve(echo, address, int(secure_port), ssl=context, max_size=None),
        websockets.serve(echo, address, int(plain_port), max_size=None),
    ):
        print("listening", flush=True)
        await asyncio.Event().wait()


asyncio.run(main())
