// The shop's catalogue: what is sold, for how much, and how much was ordered so far, which the orders service knows. Calls
// through the gateway and passes lane, baggage and trace context on. Standard library only.
'use strict';
const http = require('http');
const { headline, products } = require('./products.json');

const PASSED_ON = ['towpath-lane', 'baggage', 'traceparent', 'tracestate', 'x-request-id'];
const gateway = new URL(process.env.TOWPATH_GATEWAY || 'http://127.0.0.1:8080');
const domain = process.env.TOWPATH_DOMAIN || 'localhost';
const served = { lane: process.env.TOWPATH_LANE || 'base', instance: (process.env.TOWPATH_INSTANCE || '-').slice(-6) };
const port = Number(process.env.PORT || 8001);

// Asks another service of the shop; an error becomes part of the answer, not a failure of it.
function call(service, path, headers) {
  const passed = Object.fromEntries(PASSED_ON.filter((name) => headers[name]).map((name) => [name, headers[name]]));
  return new Promise((resolve) => {
    const failed = (error) => resolve({ error: `${service}: ${error.message}` });
    const options = { host: gateway.hostname, port: gateway.port || 80, path, timeout: 2_000 };
    const request = http.get({ ...options, headers: { ...passed, host: `${service}.${domain}` } }, (answer) => {
      let text = '';
      answer.setEncoding('utf8');
      answer.on('data', (part) => { text += part; });
      answer.on('error', failed);
      answer.on('end', () => {
        if (answer.statusCode >= 400) return resolve({ error: `${service} answered ${answer.statusCode}` });
        try { resolve(JSON.parse(text)); } catch (error) { failed(error); }
      });
    });
    request.on('timeout', () => request.destroy(new Error('no answer within 2 s')));
    request.on('error', failed);
  });
}

async function find(pathname, headers) {
  switch (pathname) {
    case '/headline': return { headline, served };
    case '/products': return { headline, products, orders: await call('orders', '/count', headers), served };
    default: return null;
  }
}

const server = http.createServer(async (request, response) => {
  const { pathname } = new URL(request.url, 'http://catalogue');
  const found = await find(pathname, request.headers);
  const body = JSON.stringify(found || { error: 'no such page' });
  response.writeHead(found ? 200 : 404, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) });
  response.end(body);
});

// Longer than the gateway keeps idle connections, so that this side never closes one that is about to be used.
server.keepAliveTimeout = 90_000;
server.listen(port, '0.0.0.0', () => console.log(`catalogue listens on ${port}, lane ${served.lane}`));
process.on('SIGTERM', () => server.close(() => process.exit(0)));
