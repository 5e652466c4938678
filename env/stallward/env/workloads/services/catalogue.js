// A web service with its data in memory: a catalogue of articles, of which a request gets some,
// with their prices summed, as JSON. Its memory is many small objects that a garbage collector
// walks through, not a few large buffers.
//
// usage: node catalogue.js SOCKET ARTICLES SEED
'use strict';

const fs = require('node:fs');
const http = require('node:http');

const [socket, articles, seed] = process.argv.slice(2);
const COUNT = Number(articles);

let state = Number(seed) >>> 0;
// mulberry32: small, seeded, and the same everywhere.
function random() {
  state = (state + 0x6d2b79f5) >>> 0;
  let t = Math.imul(state ^ (state >>> 15), state | 1);
  t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
  return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
}

function word(length) {
  let text = '';
  while (text.length < length) text += Math.floor(random() * 4294967296).toString(36);
  // A string joined of others keeps them all; a buffer's text is one object.
  return Buffer.from(text.slice(0, length)).toString('latin1');
}

function article(number) {
  return {
    number,
    name: word(24),
    text: word(400),
    price: Math.floor(random() * 100000) / 100,
    tags: [word(8), word(8), word(8), word(8)],
    stock: { north: Math.floor(random() * 100), south: Math.floor(random() * 100) },
  };
}

const catalogue = new Map();
for (let number = 0; number < COUNT; number += 1) catalogue.set(number, article(number));

function reply(response, status, value) {
  // The last key is always the same text: a client knows by it that all has come.
  const body = `${JSON.stringify({ ...value, that_was_all: true })}\n`;
  const headers = { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(body) };
  response.writeHead(status, headers).end(body);
}

const server = http.createServer((request, response) => {
  const wanted = request.url.slice(request.url.lastIndexOf('/') + 1).split(',');
  const found = wanted.map((number) => catalogue.get(Number(number)));
  if (found.includes(undefined)) reply(response, 404, {});
  else reply(response, 200, { articles: found, total: found.reduce((sum, a) => sum + a.price, 0) });
});
server.keepAliveTimeout = 0;
server.requestTimeout = 0;
// Under its name only once it answers.
server.listen(`${socket}.early`, () => fs.renameSync(`${socket}.early`, socket));
