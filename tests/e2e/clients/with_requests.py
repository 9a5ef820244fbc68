"""GET by requests, which finds the proxy in the environment and sends CONNECT with HTTP/1.0."""

import sys

import requests

from outcome import say, say_failed

try:
    got = requests.get(sys.argv[1], timeout=20)
    say(got.status_code, got.content)
except requests.exceptions.ProxyError as error:
    say_failed(error)
