// Garbage in quantity: objects, strings, buffers outside of the heap, compression, threads.
'use strict';
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
const { createHash } = require('crypto');
const zlib = require('zlib');

let checks = 0;
function check(got, wanted) {
  checks++;
  if (got !== wanted) throw new Error(`${got} instead of ${wanted}`);
}

function work(seed, scale) {
  const live = new Map();
  const hash = createHash('sha256');
  for (let i = 0; i < 40 * scale; i++) {
    for (let k = 0; k < 2000; k++) {
      const key = (i * 7 + k * 31 + seed) % 3000;
      const old = live.get(key);
      if (old) check(old.text.length + old.list[9], old.length);
      const text = `${key}:`.repeat(1 + key % 50);
      const list = Array.from({ length: 10 }, (_, n) => n * key);
      live.set(key, { text, list, length: text.length + 9 * key });
    }
    const buffers = [];
    for (let k = 0; k < 30; k++) {
      const size = 1024 << (k % 8);
      buffers.push(Buffer.alloc(size, (i + k) % 251));
    }
    buffers.forEach((b, k) => {
      check(b[b.length - 1], (i + k) % 251);
      hash.update(b.subarray(0, 64));
    });
    const packed = zlib.deflateSync(Buffer.concat(buffers.slice(0, 8)), { level: 1 });
    check(zlib.inflateSync(packed).equals(Buffer.concat(buffers.slice(0, 8))), true);
    const grown = new ArrayBuffer(1 << 20);
    new Uint32Array(grown).fill(i);
    check(new Uint32Array(grown.slice(1 << 19))[100], i);
  }
  for (const [key, { list }] of live) check(list[1], key);
  return { checks, digest: hash.digest('hex') };
}

if (isMainThread) {
  const scale = Number(process.argv[2]);
  const run = (seed) => new Promise((done, wrong) => {
    const worker = new Worker(__filename, { workerData: { seed, scale } });
    worker.on('message', done).on('error', wrong);
  });
  Promise.all([1, 2, 3].map(run)).then((all) => {
    all.push(work(4, scale));
    for (const one of all) console.log(one.digest);
    console.log(`${all.reduce((sum, one) => sum + one.checks, 0)} checks`);
  });
} else {
  parentPort.postMessage(work(workerData.seed, workerData.scale));
}
