// Columns of the page: base64, deflate, varints. `columns.rs` is the encoder, and has the form.

// Columns come after the program: a column is complete when the next one has begun, or the page is read.
const waiting = new Set();
function look() {
  for (const one of waiting) {
    const found = $("column-" + one.name);
    if (!found || !(found.nextElementSibling || document.readyState !== "loading")) continue;
    waiting.delete(one);
    one.done(found);
  }
}
new MutationObserver(look).observe(document.body, { childList: true });
document.addEventListener("DOMContentLoaded", look);

// The compressed bytes of a column. Its text is removed, so that the page does not keep it.
async function packed(name) {
  const source = await new Promise((done) => { waiting.add({ name, done }); look(); });
  const text = source.textContent;
  source.textContent = "";
  return Uint8Array.fromBase64 ? Uint8Array.fromBase64(text) : fromBase64(text);
}
const inflated = async (name) => inflate(await packed(name));

// Reads the parts itself: `new Response(stream).arrayBuffer()` takes twice the time.
async function inflate(bytes) {
  const stream = new DecompressionStream("deflate"), writer = stream.writable.getWriter(), reader = stream.readable.getReader();
  // A failure is reported by the reader, too.
  writer.write(bytes).catch(() => {});
  writer.close().catch(() => {});
  const parts = [];
  let length = 0;
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    parts.push(part.value);
    length += part.value.length;
  }
  const all = new Uint8Array(length);
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

function fromBase64(text) {
  const binary = atob(text), bytes = new Uint8Array(binary.length);
  for (let at = 0; at < binary.length; at++) bytes[at] = binary.charCodeAt(at);
  return bytes;
}

const unzigzag = (n) => (n < 2 ** 31 ? (n >>> 1) ^ -(n & 1) : n % 2 ? -(n + 1) / 2 : n / 2);

// Reads `out.length` numbers from position `at`; returns the position after them.
function decode(bytes, at, out) {
  const form = bytes[at++], length = out.length;
  if (form === 2) {
    const upper = new Float64Array(length), lower = new Float64Array(length);
    at = decode(bytes, decode(bytes, at, upper), lower);
    for (let i = 0; i < length; i++) out[i] = upper[i] * 2 ** 32 + lower[i];
    return at;
  }
  let last = 0;
  for (let i = 0; i < length; i++) {
    let byte = bytes[at++], value = byte & 127;
    if (byte > 127) {
      byte = bytes[at++];
      value |= (byte & 127) << 7;
      if (byte > 127) {
        byte = bytes[at++];
        value |= (byte & 127) << 14;
        if (byte > 127) {
          byte = bytes[at++];
          value |= (byte & 127) << 21;
          for (let scale = 2 ** 28; byte > 127; scale *= 128) {
            byte = bytes[at++];
            value += (byte & 127) * scale;
          }
        }
      }
    }
    out[i] = form === 1 ? (last += unzigzag(value)) : value;
  }
  return at;
}

// A column as an array of `Type`.
async function column(name, length, Type) {
  const bytes = await packed(name);
  if (bytes.length > LONG) {
    const found = await inWorker(bytes, length, Type).catch(() => null);
    if (found) return found;
  }
  const out = new Type(length);
  decode(await inflate(bytes), 0, out);
  return out;
}

// Columns of more bytes are decoded by workers, at the same time.
const LONG = 1 << 20;
// Where the browser has no workers for pages of files, the page decodes them itself.
async function inWorker(bytes, length, Type) {
  const receive = async ({ data: { bytes, length, type } }) => {
    const out = new self[type](length);
    decode(await inflate(bytes), 0, out);
    postMessage(out, [out.buffer]);
  };
  const source = `"use strict"; const unzigzag = ${unzigzag}; ${inflate} ${decode} onmessage = ${receive};`;
  const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
  const worker = new Worker(url);
  return new Promise((done, fail) => {
    worker.onmessage = (event) => done(event.data);
    worker.onerror = worker.onmessageerror = fail;
    worker.postMessage({ bytes, length, type: Type.name });
  }).finally(() => { worker.terminate(); URL.revokeObjectURL(url); });
}

// A column of numbers of 32 bits; an array of wider ones if `most`, the largest number, needs it.
const numbers = (name, length, most) => column(name, length, most > 0xffffffff ? Float64Array : Uint32Array);

// A column of exact numbers: as BigInt if they need more than 52 bits.
async function exact(name, length) {
  const bytes = await inflated(name);
  const out = new Float64Array(length);
  if (bytes[0] !== 2) {
    decode(bytes, 0, out);
    return out;
  }
  const big = new BigUint64Array(length), lower = new Float64Array(length);
  decode(bytes, decode(bytes, 1, out), lower);
  for (let i = 0; i < length; i++) big[i] = (BigInt(out[i]) << 32n) | BigInt(lower[i]);
  return big;
}

// Texts by number.
async function texts(name, length) {
  const bytes = await inflated(name), ends = new Float64Array(length);
  const at = decode(bytes, 0, ends);
  const all = new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes.subarray(at));
  for (let i = 1; i < length; i++) ends[i] += ends[i - 1];
  const made = [];
  return { length, get: (i) => (made[i] ??= all.slice(i ? ends[i - 1] : 0, ends[i])) };
}
