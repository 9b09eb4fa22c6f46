"""Answers with the moment at which it began to listen, so that the bench can tell how fresh it was."""

import os
import socket
import socketserver
import time
from http.server import BaseHTTPRequestHandler


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = f"{self.server.ready_ns} {os.getpid()}\n".encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 256
    ready_ns = 0

    def server_activate(self):
        super().server_activate()
        self.ready_ns = time.time_ns()


Server(("0.0.0.0", int(os.environ["PORT"])), Handler).serve_forever()
