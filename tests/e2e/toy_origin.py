"""A small origin for the demo: answers every GET with one line, in plain HTTP or over TLS.

toy_origin.py 192.0.2.10:443 "hello" [CERTIFICATE-WITH-KEY]
"""

import http.server
import ssl
import sys
import threading


def main():
    place, text, *certificate = sys.argv[1:]
    address, port = place.rsplit(":", 1)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            content = text.encode() + b"\n"
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass  # the demo shows the proxy's lines, not these

    server = http.server.ThreadingHTTPServer((address, int(port)), Handler)
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate[0])
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"listening on {place}", flush=True)
    sys.stdin.read()  # until whoever started this is done with it


if __name__ == "__main__":
    main()
