"use strict";
// Data of the page: decompression of samples and arrays, and the pictures that are in memory.

const $ = (id) => document.getElementById(id);
const data = JSON.parse($("data").textContent);
const pictures = data.pictures;
const LETTERS = "yuv";
const MEMORY = 4e8; // bytes of samples, and of painted pictures, that are kept

const state = {
  index: 0,
  view: 0,
  before: 0,
  component: 0,
  split: null,
  divider: 0.5,
  lines: new Set(["grid"]),
  fill: null,
  opacity: 0.5,
  gain: 8,
  scale: 1,
  left: 0,
  top: 0,
  x: null,
  y: null,
};
const info = () => pictures[state.index];

// ---- decompression

// Inverse of as_text: a character of windows-1252 is a byte, and "=" stands before a byte to which 64 was added.
const CHARACTERS = new TextDecoder("windows-1252").decode(Uint8Array.from({ length: 256 }, (_, byte) => byte));
const BYTES = new Uint8Array(1 << 16);
for (let byte = 0; byte < 256; byte++) BYTES[CHARACTERS.charCodeAt(byte)] = byte;
const ESCAPE = 61;
const bytesOf = (text) => {
  const bytes = new Uint8Array(text.length);
  let count = 0;
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    bytes[count++] = code === ESCAPE ? BYTES[text.charCodeAt(++i)] - 64 : BYTES[code];
  }
  return bytes.subarray(0, count);
};
// The chunks follow the script, so that the first picture is shown while the others are still being read. An element is
// complete once another one follows it.
const chunk = async (number) => {
  for (;;) {
    const node = $(`c${number}`);
    const loading = document.readyState === "loading";
    if (node && (node.nextElementSibling || !loading)) return node.textContent;
    if (!loading) throw new Error(`the page has no chunk ${number}: it is incomplete`);
    await new Promise((done) => setTimeout(done, 10));
  }
};
const SERVED = $("data").dataset.served === "1";
const fetched = async (number) => {
  const answer = await fetch(`chunk/${number}`);
  if (!answer.ok) throw new Error(`the server has no chunk ${number}`);
  return answer.arrayBuffer();
};
const unpack = async (number) => {
  const bytes = SERVED ? await fetched(number) : bytesOf(await chunk(number));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
};

// Inverse of pack_plane: differences from the samples `like`, or from the median predictor of JPEG-LS with zeros
// outside of the plane. The lowest `shift` bits of all samples are 0 and not stored.
const samplesOf = (buffer, w, h, like, shift) => {
  const count = w * h;
  const low = new Uint8Array(buffer, 0, count);
  const high = new Uint8Array(buffer, count);
  const out = new Uint16Array(count);
  const errorAt = (at) => {
    const folded = low[at] | (high[2 * at] << 8) | (high[2 * at + 1] << 16);
    return (folded >>> 1) ^ -(folded & 1);
  };
  if (like) {
    for (let at = 0; at < count; at++) out[at] = ((like[at] >> shift) + errorAt(at)) << shift;
    return out;
  }
  for (let y = 0, at = 0; y < h; y++) {
    let left = 0;
    let corner = 0;
    for (let x = 0; x < w; x++, at++) {
      const above = y ? out[at - w] : 0;
      const least = left < above ? left : above;
      const most = left < above ? above : left;
      const guess = left + above - corner;
      left = out[at] = (guess < least ? least : guess > most ? most : guess) + errorAt(at);
      corner = above;
    }
  }
  if (shift) for (let at = 0; at < count; at++) out[at] <<= shift;
  return out;
};

// Inverse of pack_integers: sums of differences modulo 2^32, lowest bytes first.
const integersOf = (buffer) => {
  const bytes = new Uint8Array(buffer);
  const count = bytes.length / 4;
  const out = new Int32Array(count);
  for (let i = 0, value = 0; i < count; i++) {
    const folded = bytes[i] | (bytes[count + i] << 8) | (bytes[2 * count + i] << 16) | (bytes[3 * count + i] << 24);
    value = (value + ((folded >>> 1) ^ -(folded & 1))) | 0;
    out[i] = value;
  }
  return out;
};

// ---- pictures in memory

const opened = new Map();
const bytesOfPicture = (picture) => {
  const samples = picture.sizes.reduce((sum, [w, h]) => sum + w * h, 0);
  return 2 * samples * Object.keys(picture.layers).length;
};
const open = (index) => {
  const known = opened.get(index) || { index, planes: new Map(), detail: null, detailReady: null };
  opened.delete(index);
  opened.set(index, known);
  let total = 0;
  for (const other of opened.keys()) total += bytesOfPicture(pictures[other]);
  for (const other of opened.keys()) {
    if (total <= MEMORY || opened.size <= 3) break;
    total -= bytesOfPicture(pictures[other]);
    opened.delete(other);
  }
  return known;
};

// A plane of a layer: `samples` is null until `ready` resolves.
const plane = (index, layer, component) => {
  const { planes } = open(index);
  const key = `${layer} ${component}`;
  if (!planes.has(key)) {
    const source = pictures[index].layers[layer][component];
    const [w, h] = pictures[index].sizes[component];
    const entry = { samples: null };
    const base = source.like === undefined ? null : plane(index, source.like, component);
    entry.ready = (async () => {
      const buffer = source.chunk === undefined ? null : await unpack(source.chunk);
      if (base) await base.ready;
      entry.samples = buffer ? samplesOf(buffer, w, h, base?.samples, source.shift) : base.samples;
      if (index === state.index) showValuesLater();
    })();
    planes.set(key, entry);
  }
  return planes.get(key);
};
const planesOf = (index, layer) => (pictures[index].layers[layer] || []).map((_, i) => plane(index, layer, i));

const BLOCK = ["channel", "x", "y", "w", "h", "qt", "mt", "qp", "mode", "tools"];
const TRANSFORM = ["channel", "x", "y", "w", "h", "cbf", "ts", "hor", "ver", "levels"];
const columnsOf = (array, names) => {
  const count = array.length / names.length;
  const columns = Object.fromEntries(names.map((name, i) => [name, array.subarray(i * count, (i + 1) * count)]));
  return { ...columns, count };
};

// Coding of the blocks of a picture: `detail` of an opened picture is null until this resolves.
const readDetail = (index) => {
  const picture = open(index);
  if (!picture.detailReady) {
    picture.detailReady = (async () => {
      const { text, arrays } = pictures[index].detail;
      const detail = JSON.parse(new TextDecoder().decode(await unpack(text)));
      const read = async (name) => (arrays[name] ? integersOf(await unpack(arrays[name].chunk)) : null);
      detail.blocks = columnsOf(await read("blocks"), BLOCK);
      const transforms = await read("transforms");
      detail.transforms = transforms && columnsOf(transforms, TRANSFORM);
      for (const name of ["vectors", "references", "strengths"]) {
        detail[name] = await read(name);
        if (detail[name]) detail[`${name}Shape`] = arrays[name].shape;
      }
      detail.owners = ownersOf(detail.blocks, index);
      picture.detail = detail;
    })();
  }
  return picture.detailReady;
};
const detailOf = (index) => open(index).detail;

// Index of the CU of each 4x4 cell of the coded picture, for both trees; null for a tree without CUs.
const cellsOf = (picture) => {
  const [left, top] = picture.offset;
  return [Math.ceil((picture.width + left) / 4), Math.ceil((picture.height + top) / 4)];
};
const ownersOf = (blocks, index) => {
  const [columns, rows] = cellsOf(pictures[index]);
  const owners = [0, 1].map(() => new Int32Array(columns * rows).fill(-1));
  const any = [false, false];
  for (let i = 0; i < blocks.count; i++) {
    const owner = owners[blocks.channel[i]];
    any[blocks.channel[i]] = true;
    const right = Math.min(Math.ceil((blocks.x[i] + blocks.w[i]) / 4), columns);
    const bottom = Math.min(Math.ceil((blocks.y[i] + blocks.h[i]) / 4), rows);
    for (let y = blocks.y[i] >> 2; y < bottom; y++) owner.fill(i, y * columns + (blocks.x[i] >> 2), y * columns + right);
  }
  return owners.map((owner, channel) => (any[channel] ? owner : null));
};
