#!/usr/bin/env python3
"""An MCP server for the tests, with nothing but the standard library: what its tools do, a hostile server could do.

It speaks JSON-RPC, one message a line, of the 2025-11-25 protocol; it ends when its standard input does.
"""

import json
import os
import socket
import sys
import time
import urllib.request

SECONDS = 5


def echo(text):
    return text


def environment():
    return dict(os.environ)


def identity():
    """What the process is inside its container."""
    status = open("/proc/self/status", encoding="utf-8").read().splitlines()
    wanted = ("Uid", "Gid", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp")
    return {
        "hostname": socket.gethostname(), "pid": os.getpid(), "cwd": os.getcwd(),
        **{line.split(":")[0]: line.split(":")[1].split() for line in status if line.split(":")[0] in wanted},
    }


def fetch(url):
    """Through the proxy of the environment, as most clients do it."""
    try:
        with urllib.request.urlopen(url, timeout=SECONDS) as answer:
            return {"status": answer.status, "body": answer.read(10_000).decode("utf-8", "replace")}
    except urllib.error.HTTPError as error:
        return {"status": error.code, "body": error.read(10_000).decode("utf-8", "replace")}
    except OSError as error:
        return {"error": str(error)}


def connect(host, port):
    """Past every proxy; returns what the other side says first."""
    try:
        with socket.create_connection((host, port), SECONDS) as connection:
            connection.settimeout(1)
            try:
                return {"connected": True, "said": connection.recv(100).decode("utf-8", "replace")}
            except OSError:
                return {"connected": True, "said": ""}
    except OSError as error:
        return {"connected": False, "error": str(error)}


def resolve(name):
    try:
        return sorted({answer[4][0] for answer in socket.getaddrinfo(name, None)})
    except OSError as error:
        return {"error": str(error)}


def read(path):
    try:
        return open(path, encoding="utf-8", errors="replace").read(100_000)
    except OSError as error:
        return {"error": str(error)}


def write(path, text):
    try:
        with open(path, "w", encoding="utf-8") as file:
            return {"written": file.write(text)}
    except OSError as error:
        return {"error": str(error)}


def say(text, times=1):
    """Writes to standard error."""
    for _ in range(times):
        print(text, file=sys.stderr, flush=True)
    return times


def wait(seconds):
    time.sleep(seconds)
    return seconds


def leave(code):
    """Ends the server at once, without an answer."""
    sys.stdout.flush()
    os._exit(code)


TOOLS = [echo, environment, identity, fetch, connect, resolve, read, write, say, wait, leave]
_TYPES = {"port": "integer", "times": "integer", "code": "integer", "seconds": "number"}


def describe(tool):
    names = tool.__code__.co_varnames[:tool.__code__.co_argcount]
    required = names[:len(names) - len(tool.__defaults__ or ())]
    return {
        "name": tool.__name__,
        "description": (tool.__doc__ or tool.__name__).strip(),
        "inputSchema": {
            "type": "object",
            "properties": {name: {"type": _TYPES.get(name, "string")} for name in names},
            "required": list(required),
        },
    }


def answer(message):
    method, params = message.get("method"), message.get("params") or {}
    if method == "initialize":
        return {
            "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
            "serverInfo": {"name": "toy", "version": "1"},
        }
    if method == "ping":
        return {}
    if method == "tools/list":
        return {"tools": [describe(tool) for tool in TOOLS]}
    if method == "tools/call":
        for tool in TOOLS:
            if tool.__name__ == params.get("name"):
                result = tool(**params.get("arguments") or {})
                text = result if isinstance(result, str) else json.dumps(result)
                return {"content": [{"type": "text", "text": text}]}
    raise LookupError(method)


def main():
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        reply = {"jsonrpc": "2.0", "id": message["id"]}
        try:
            reply["result"] = answer(message)
        except LookupError as error:
            reply["error"] = {"code": -32601, "message": f"unknown: {error}"}
        except Exception as error:  # A tool that fails must not end the server.
            reply["error"] = {"code": -32603, "message": repr(error)}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
