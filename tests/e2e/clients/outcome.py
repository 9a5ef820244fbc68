"""What a client says of its request: one JSON object on standard output."""

import hashlib
import json


def say(status, content):
    print(json.dumps({"status": status, "sha256": hashlib.sha256(content).hexdigest()}))


def say_failed(error):
    print(json.dumps({"failed": str(error)}))
