// The shop's catalogue: what is sold, and for how much. Standard library only.
'use strict';
const http = require('http');
const { headline, products } = require('./products.json');

const served = { lane: process.env.TOWPATH_LANE || 'base', instance: (process.env.TOWPATH_INSTANCE || '-').slice(-6) };
const port = Number(process.env.PORT || 8001);

const server = http.createServer((request, response) => {
  const { pathname } = new URL(request.url, 'http://catalogue');
  const found = pathname === '/products';
  const body = JSON.stringify(found ? { headline, products, served } : { error: 'no such page' });
  response.writeHead(found ? 200 : 404, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) });
  response.end(body);
});

// Longer than the gateway keeps idle connections, so that this side never closes one that is about to be used.
server.keepAliveTimeout = 90_000;
server.listen(port, '0.0.0.0', () => console.log(`catalogue listens on ${port}, lane ${served.lane}`));
process.on('SIGTERM', () => server.close(() => process.exit(0)));
