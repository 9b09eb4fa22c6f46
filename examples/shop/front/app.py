"""The shop's front: renders one page from the catalogue and orders services.

Calls the other services through the gateway and passes lane, baggage and trace context on, so that a request stays
in its lane over every hop. Standard library only.
"""

import html
import http.client
import json
import os
import socketserver
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

PASSED_ON = ("towpath-lane", "baggage", "traceparent", "tracestate", "x-request-id")
GATEWAY = urlsplit(os.environ.get("TOWPATH_GATEWAY", "http://127.0.0.1:8080"))
DOMAIN = os.environ.get("TOWPATH_DOMAIN", "localhost")
LANE = os.environ.get("TOWPATH_LANE", "base")
INSTANCE = os.environ.get("TOWPATH_INSTANCE", "-")[-6:]

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Lock-keeper's shop</title><style>
:root {{ color-scheme: light dark; --ink: #1d2b2a; --paper: #f6f4ee; --line: #d9d4c5; --brand: #1f6f5c }}
@media (prefers-color-scheme: dark) {{ :root {{ --ink: #e7e5dd; --paper: #17201f; --line: #33403e; --brand: #6cc7ae }} }}
body {{ font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 0 }}
main {{ max-width: 44rem; margin: 3rem auto; padding: 0 1rem }}
h1 {{ font-size: 1.6rem; margin: 0 0 .25rem }} h2 {{ font-size: 1.1rem; margin: 2rem 0 .5rem }}
table {{ border-collapse: collapse; width: 100% }} td, th {{ text-align: left; padding: .4rem 0; border-bottom: 1px solid var(--line) }}
td:last-child, th:last-child {{ text-align: right }} s {{ opacity: .6 }}
.tag {{ font: 12px ui-monospace, monospace; border: 1px solid var(--line); border-radius: 1rem; padding: .1rem .6rem; margin-right: .3rem }}
.feature {{ border-color: var(--brand); color: var(--brand) }}
</style></head><body><main>
<h1>The lock-keeper's shop</h1><p>{headline}</p>
<h2>Catalogue</h2><table><tr><th>Thing</th><th>Price</th></tr>{rows}</table>
<h2>Orders</h2><p>{orders}</p>
<h2>Who served this</h2><p>{served}</p>
</main></body></html>
"""


def call(service, path, headers, method="GET"):
    """Asks another service of the shop through the gateway; an error becomes part of the page, not a failure of it."""
    passed = {name: headers[name] for name in PASSED_ON if headers.get(name)}
    passed["Host"] = f"{service}.{DOMAIN}"
    connection = http.client.HTTPConnection(GATEWAY.hostname, GATEWAY.port or 80, timeout=5)
    try:
        connection.request(method, path, headers=passed)
        answer = connection.getresponse()
        body = answer.read()
        if answer.status >= 400:
            return {"error": f"{service} answered {answer.status}"}
        return json.loads(body)
    except (OSError, ValueError, http.client.HTTPException) as error:
        return {"error": f"{service}: {error}"}
    finally:
        connection.close()


def price(product):
    """The price cell of a product: struck through where the lane sells it for less."""
    text = f"{product['price']:.2f}"
    if "was" in product:
        return f"<s>{product['was']:.2f}</s> <b>{text}</b>"
    return text


def page(headers):
    """The page, as text, with the parts that the other services gave."""
    catalogue = call("catalogue", "/products", headers)
    orders = call("orders", "/orders", headers)
    served = {
        "front": {"lane": LANE, "instance": INSTANCE},
        "catalogue": catalogue.get("served"),
        "orders": orders.get("served"),
        # Two hops away: who served those that served us.
        "catalogue > orders": catalogue.get("orders", {}).get("served"),
        "orders > catalogue": orders.get("catalogue", {}).get("served"),
    }
    products = catalogue.get("products", [])
    return served, PAGE.format(
        headline=html.escape(catalogue.get("headline", catalogue.get("error", ""))),
        rows="".join(f"<tr><td>{html.escape(p['name'])}</td><td>{price(p)}</td></tr>" for p in products),
        orders=html.escape(orders.get("error") or f"{orders.get('count', 0)} orders so far."),
        served=" ".join(
            f'<span class="tag{"" if by["lane"] == "base" else " feature"}">{html.escape(name)} · {html.escape(by["lane"])} · {html.escape(by["instance"])}</span>'
            for name, by in served.items()
            if by
        ),
    )


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        path = urlsplit(self.path).path
        if path == "/":
            served, text = page(self.headers)
            self.answer(200, "text/html; charset=utf-8", text, served)
        elif path == "/served":
            served, _ = page(self.headers)
            self.answer(200, "application/json", json.dumps(served) + "\n", served)
        else:
            self.answer(404, "text/plain; charset=utf-8", "no such page\n", None)

    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length") or 0))
        if urlsplit(self.path).path == "/buy":
            self.answer(200, "application/json", json.dumps(call("orders", "/orders", self.headers, "POST")) + "\n", None)
        else:
            self.answer(404, "text/plain; charset=utf-8", "no such page\n", None)

    def answer(self, status, content_type, text, served):
        body = text.encode()
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        if served:
            self.send_header("x-shop-served", ", ".join(f"{n}={s['lane']}" for n, s in served.items() if s))
        self.end_headers()
        self.wfile.write(body)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def server_bind(self):
        # HTTPServer would look its own name up in the DNS here, which can hang where there is none.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]


if __name__ == "__main__":
    port = int(os.environ.get("PORT", "8000"))
    print(f"front listens on {port}, lane {LANE}", flush=True)
    Server(("0.0.0.0", port), Handler).serve_forever()
