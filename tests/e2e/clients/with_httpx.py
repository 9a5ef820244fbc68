"""GET by httpx, which finds the proxy in the environment and sends CONNECT with HTTP/1.1."""

import sys

import httpx

from outcome import say, say_failed

try:
    got = httpx.get(sys.argv[1], timeout=20)
    say(got.status_code, got.content)
except httpx.ProxyError as error:
    say_failed(error)
