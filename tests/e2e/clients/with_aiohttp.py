"""GET by aiohttp, which looks for the proxy in the environment only when told to trust it."""

import asyncio
import sys

import aiohttp

from outcome import say, say_failed


async def main():
    async with aiohttp.ClientSession(trust_env=True) as session:
        try:
            async with session.get(sys.argv[1]) as got:
                say(got.status, await got.read())
        except aiohttp.ClientHttpProxyError as error:
            say_failed(error)


asyncio.run(main())
