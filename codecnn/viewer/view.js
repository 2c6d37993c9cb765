"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const canvas = $("canvas");
const pen = canvas.getContext("2d");
const { width, height, bitDepth } = data;
const shift = bitDepth - 8;
const TITLES = { unfiltered: "before in-loop filters" };
const COMPONENTS = ["colour", "Y", "U", "V"].slice(0, data.sizes.length === 3 ? 4 : 1);
if (COMPONENTS.length === 1) COMPONENTS[0] = "Y";
const [CHANNEL, X, Y, W, H, QT, MT, QP, MODE, TOOLS, COLUMNS] = Array.from({ length: 11 }, (_, i) => i);

// Views: the layers, then differences of two layers (first minus second).
const views = [];
const has = (name) => name in data.layers;
for (const name of Object.keys(data.layers)) views.push({ title: TITLES[name] || name, first: name });
const difference = (title, first, second) => {
  if (has(first) && has(second)) views.push({ title, first, second });
};
difference("residual", "unfiltered", "prediction");
difference("effect of in-loop filters", "decoded", "unfiltered");
difference("effect of network", "filtered", "decoded");
difference("coding error", "decoded", "original");
difference("error after network", "filtered", "original");
if (has("original") && has("filtered")) {
  views.push({ title: "change of error", first: "filtered", second: "decoded", against: "original" });
}

const state = {
  view: views.findIndex((view) => view.first === "decoded" && !view.second),
  before: 0,
  component: 0,
  grid: true,
  fill: null,
  gain: 8,
  scale: 1,
  left: 0,
  top: 0,
  x: null,
  y: null,
};

// ---- decompression

const bytesOf = (text) => {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
};
const unpack = async (text) => {
  const stream = new Blob([bytesOf(text)]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
};

// Inverse of pack_plane: median predictor of JPEG-LS with zeros outside of the plane.
const samplesOf = (buffer, w, h) => {
  const low = new Uint8Array(buffer, 0, w * h);
  const high = new Uint8Array(buffer, w * h);
  const out = new Uint16Array(w * h);
  for (let y = 0, at = 0; y < h; y++) {
    let left = 0;
    let corner = 0;
    for (let x = 0; x < w; x++, at++) {
      const above = y ? out[at - w] : 0;
      const least = left < above ? left : above;
      const most = left < above ? above : left;
      const guess = left + above - corner;
      const folded = low[at] | (high[2 * at] << 8) | (high[2 * at + 1] << 16);
      const error = folded & 1 ? -((folded + 1) >> 1) : folded >> 1;
      left = out[at] = (guess < least ? least : guess > most ? most : guess) + error;
      corner = above;
    }
  }
  return out;
};

const planes = new Map();
const plane = (name) => {
  if (!planes.has(name)) {
    const [w, h] = data.sizes["yuv".indexOf(name.at(-1))];
    const entry = { samples: null };
    entry.ready = unpack(data.planes[name]).then((buffer) => {
      entry.samples = samplesOf(buffer, w, h);
      data.planes[name] = null;
    });
    planes.set(name, entry);
  }
  return planes.get(name);
};
const planesOf = (layer) => data.layers[layer].map(plane);
const layersOf = (view) => [view.first, view.second, view.against].filter(Boolean);
const loaded = (layer) => data.layers[layer].every((name) => planes.get(name)?.samples);

// ---- conversion of samples to colours

const painted = document.createElement("canvas");
let paintedKey = "";

const component = () => (state.component ? state.component - 1 : 0);
const sizeOf = (index) => data.sizes[Math.min(index, data.sizes.length - 1)];

const shades = (view, target) => {
  const index = component();
  const [a, b, c] = layersOf(view).map((name) => planesOf(name)[index]?.samples);
  const scale = state.gain / 2 ** shift;
  if (!a || (view.second && !b)) {
    target.fill(0xff202020);
  } else if (view.against) {
    for (let i = 0; i < target.length; i++) {
      const change = Math.min(255, Math.abs(Math.abs(a[i] - c[i]) - Math.abs(b[i] - c[i])) * scale);
      const rest = 255 - change;
      const better = Math.abs(a[i] - c[i]) < Math.abs(b[i] - c[i]);
      target[i] = better ? 0xffff0000 | (rest << 8) | rest : 0xff0000ff | (rest << 16) | (rest << 8);
    }
  } else if (view.second) {
    for (let i = 0; i < target.length; i++) {
      const level = Math.max(0, Math.min(255, Math.round(128 + (a[i] - b[i]) * scale)));
      target[i] = 0xff000000 | (level << 16) | (level << 8) | level;
    }
  } else {
    for (let i = 0; i < target.length; i++) {
      const level = a[i] >> shift;
      target[i] = 0xff000000 | (level << 16) | (level << 8) | level;
    }
  }
};

// Conversion from Y'CbCr (BT.709, narrow range) to RGB; the components Y, U and V are shown unconverted.
const colours = (view, target) => {
  const [luma, cb, cr] = planesOf(view.first).map((entry) => entry.samples);
  const [w] = data.sizes[0];
  const [cw, ch] = data.sizes[1];
  const right = cw < w ? 1 : 0;
  const down = ch < height ? 1 : 0;
  const unit = 1 / (1 << shift);
  const table = new Uint8ClampedArray(target.buffer);
  for (let y = 0, at = 0; y < height; y++) {
    const row = (y >> down) * cw;
    for (let x = 0; x < w; x++, at++) {
      const l = (luma[at] * unit - 16) * 1.164384;
      const u = cb[row + (x >> right)] * unit - 128;
      const v = cr[row + (x >> right)] * unit - 128;
      table[4 * at] = l + 1.792741 * v;
      table[4 * at + 1] = l - 0.213249 * u - 0.532909 * v;
      table[4 * at + 2] = l + 2.112402 * u;
      table[4 * at + 3] = 255;
    }
  }
};

const paint = () => {
  const view = views[state.view];
  const key = [state.view, state.component, view.second ? state.gain : 0].join();
  if (key === paintedKey) return true;
  if (!layersOf(view).every(loaded)) return false;
  const inColour = COMPONENTS[state.component] === "colour" && !view.second && data.layers[view.first].length === 3;
  const [w, h] = inColour ? data.sizes[0] : sizeOf(component());
  painted.width = w;
  painted.height = h;
  const image = new ImageData(w, h);
  (inColour ? colours : shades)(view, new Uint32Array(image.data.buffer));
  painted.getContext("2d").putImageData(image, 0, 0);
  paintedKey = key;
  return true;
};

// ---- CUs

let blocks = new Int16Array(0);
const cell = (value) => Math.ceil(value / 4);
const owners = [null, null];
const fills = document.createElement("canvas");
let fillKey = "";

// In a picture with two coding trees, the chroma planes have separate CUs.
const tree = () => (state.component > 1 && owners[1] ? 1 : 0);

const mapBlocks = () => {
  const columns = cell(width);
  for (const channel of [0, 1]) {
    const owner = new Int32Array(columns * cell(height)).fill(-1);
    let any = false;
    for (let at = 0; at < blocks.length; at += COLUMNS) {
      if (blocks[at + CHANNEL] !== channel) continue;
      any = true;
      const right = Math.min(cell(blocks[at + X] + blocks[at + W]), columns);
      const bottom = Math.min(cell(blocks[at + Y] + blocks[at + H]), cell(height));
      for (let y = blocks[at + Y] >> 2; y < bottom; y++) owner.fill(at, y * columns + (blocks[at + X] >> 2), y * columns + right);
    }
    owners[channel] = any ? owner : null;
  }
};
const blockAt = (x, y) => {
  const owner = owners[tree()];
  return owner ? owner[(y >> 2) * cell(width) + (x >> 2)] : -1;
};

const KINDS = { planar: [210, 8], DC: [210, 30], MIP: [45, 75], IBC: [300, 70], palette: [330, 70], inter: [120, 60], none: [0, 0] };
const hueOf = ([, , kind, dx, dy]) => {
  if (kind !== "angular") return KINDS[kind];
  return [(Math.atan2(-dy, -dx) / Math.PI) * 360 * 0.9 + 180, 75];
};
const hsl = (h, s, l) => {
  const f = (n) => {
    const k = (n + h / 30 + 24) % 12;
    return Math.round(255 * (l - s * Math.min(l, 1 - l) * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
  };
  return 0xff000000 | (f(4) << 16) | (f(8) << 8) | f(0);
};
const range = (valueOf) => {
  let low = Infinity;
  let high = -Infinity;
  for (let at = 0; at < blocks.length; at += COLUMNS) {
    low = Math.min(low, valueOf(at));
    high = Math.max(high, valueOf(at));
  }
  return [low, high];
};
const depthOf = (at) => blocks[at + QT] + blocks[at + MT];
const qpOf = (at) => blocks[at + QP];

const paintFill = () => {
  const key = [state.fill, tree()].join();
  if (key === fillKey) return;
  fillKey = key;
  const owner = owners[tree()];
  fills.width = cell(width);
  fills.height = cell(height);
  const image = new ImageData(fills.width, fills.height);
  const target = new Uint32Array(image.data.buffer);
  const valueOf = state.fill === "QP" ? qpOf : depthOf;
  const [low, high] = range(valueOf);
  const modes = data.modes.map((mode) => {
    const [h, s] = hueOf(mode);
    return hsl(((h % 360) + 360) % 360, s / 100, 0.5);
  });
  for (let i = 0; i < target.length; i++) {
    const at = owner ? owner[i] : -1;
    if (at < 0) continue;
    if (state.fill === "modes") target[i] = modes[blocks[at + MODE]];
    else if (high > low) target[i] = hsl(240 - (240 * (valueOf(at) - low)) / (high - low), 0.8, 0.5);
  }
  fills.getContext("2d").putImageData(image, 0, 0);
};

// ---- drawing

let drawRequested = false;
const draw = () => {
  if (!drawRequested) {
    drawRequested = true;
    requestAnimationFrame(() => {
      drawRequested = false;
      render();
    });
  }
};

const render = () => {
  const ratio = devicePixelRatio || 1;
  const [w, h] = [Math.round(canvas.clientWidth * ratio), Math.round(canvas.clientHeight * ratio)];
  if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
  pen.fillStyle = "#0b1017";
  pen.fillRect(0, 0, w, h);
  const scale = state.scale * ratio;
  const [left, top] = [Math.round(state.left * ratio), Math.round(state.top * ratio)];
  const message = $("message");
  if (!paint()) {
    message.textContent = "Reading the layer …";
    message.hidden = false;
    Promise.all(layersOf(views[state.view]).flatMap(planesOf).map((entry) => entry.ready)).then(draw);
    return;
  }
  message.hidden = true;
  pen.imageSmoothingEnabled = scale < 1;
  pen.imageSmoothingQuality = "high";
  pen.drawImage(painted, left, top, width * scale, height * scale);
  if (state.fill && owners[tree()]) {
    paintFill();
    pen.globalAlpha = 0.42;
    pen.imageSmoothingEnabled = false;
    pen.drawImage(fills, left, top, fills.width * 4 * scale, fills.height * 4 * scale);
    pen.globalAlpha = 1;
  }
  if (state.grid || state.fill) drawBlocks(scale, left, top, w, h, ratio);
  if (state.x !== null) drawCross(scale, left, top, ratio);
  $("scale").textContent = `${(100 * state.scale).toFixed(state.scale < 0.1 ? 1 : 0)} %`;
};

const drawBlocks = (scale, left, top, w, h, ratio) => {
  const channel = tree();
  const across = (value) => Math.round(value * scale + left) + 0.5;
  const along = (value) => Math.round(value * scale + top) + 0.5;
  const size = Math.round(11 * ratio);
  const labels = [];
  pen.beginPath();
  for (let at = 0; at < blocks.length; at += COLUMNS) {
    if (blocks[at + CHANNEL] !== channel) continue;
    const x0 = across(blocks[at + X]);
    const y0 = along(blocks[at + Y]);
    const x1 = across(Math.min(blocks[at + X] + blocks[at + W], width));
    const y1 = along(Math.min(blocks[at + Y] + blocks[at + H], height));
    if (x1 < 0 || y1 < 0 || x0 > w || y0 > h) continue;
    pen.moveTo(x1, y0);
    pen.lineTo(x0, y0);
    pen.lineTo(x0, y1);
    if (state.fill && x1 - x0 > 2.4 * size && y1 - y0 > 1.6 * size) labels.push([at, x0, y0, x1 - x0, y1 - y0]);
  }
  if (state.grid) {
    pen.strokeStyle = "rgba(255, 235, 120, 0.65)";
    pen.lineWidth = 1;
    pen.stroke();
    if (scale * data.ctu > 24) {
      pen.beginPath();
      for (let x = 0; x <= width; x += data.ctu) {
        pen.moveTo(across(x), along(0));
        pen.lineTo(across(x), along(height));
      }
      for (let y = 0; y <= height; y += data.ctu) {
        pen.moveTo(across(0), along(y));
        pen.lineTo(across(width), along(y));
      }
      pen.strokeStyle = "rgba(255, 120, 90, 0.9)";
      pen.stroke();
    }
  }
  pen.font = `${size}px system-ui, sans-serif`;
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  pen.lineWidth = 3;
  pen.strokeStyle = "#000c";
  pen.fillStyle = "#fff";
  for (const [at, x, y, bw, bh] of labels) {
    const mode = data.modes[blocks[at + MODE]];
    const text = state.fill === "modes" ? mode[1] : String(state.fill === "QP" ? qpOf(at) : depthOf(at));
    pen.strokeText(text, x + bw / 2, y + bh / 2);
    pen.fillText(text, x + bw / 2, y + bh / 2);
    if (state.fill === "modes" && mode[2] === "angular" && Math.min(bw, bh) > 3.2 * size) drawAngle(mode, x, y, bw, bh);
  }
};

// Line through the centre of the block; the dot marks the direction of the reference samples.
const drawAngle = ([, , , dx, dy], x, y, bw, bh) => {
  const reach = Math.min(bw, bh) * 0.42;
  const length = Math.hypot(dx, dy);
  const [ux, uy] = [dx / length, dy / length];
  const [cx, cy] = [x + bw / 2, y + bh / 2];
  pen.beginPath();
  for (const [from, to] of [[0.45, 1], [-0.45, -1]]) {
    pen.moveTo(cx + ux * reach * from, cy + uy * reach * from);
    pen.lineTo(cx + ux * reach * to, cy + uy * reach * to);
  }
  pen.save();
  pen.lineWidth = 2;
  pen.strokeStyle = "#ffffffd0";
  pen.stroke();
  pen.beginPath();
  pen.arc(cx + ux * reach, cy + uy * reach, 3, 0, 7);
  pen.fill();
  pen.restore();
};

const drawCross = (scale, left, top, ratio) => {
  const at = blockAt(state.x, state.y);
  pen.lineWidth = Math.max(1, ratio);
  pen.strokeStyle = "#4ea1ff";
  if (at >= 0) {
    const [x, y] = [blocks[at + X] * scale + left, blocks[at + Y] * scale + top];
    pen.strokeRect(x, y, blocks[at + W] * scale, blocks[at + H] * scale);
  }
  const side = Math.max(scale, 5 * ratio);
  pen.strokeStyle = "#fff";
  pen.strokeRect((state.x + 0.5) * scale + left - side / 2, (state.y + 0.5) * scale + top - side / 2, side, side);
};

// ---- values

const element = (name, text) => {
  const node = document.createElement(name);
  node.textContent = text;
  return node;
};
const sampleAt = (layer, index) => {
  const entry = planes.get(data.layers[layer][index]);
  if (!entry?.samples) return null;
  const [w, h] = data.sizes[index];
  return entry.samples[Math.floor((state.y * h) / height) * w + Math.floor((state.x * w) / width)];
};
const signed = (value) => (value > 0 ? `+${value}` : value < 0 ? `−${-value}` : "0");

const showValues = () => {
  if (state.x === null) return;
  $("place").textContent = `x ${state.x}, y ${state.y}`;
  const count = data.sizes.length;
  const head = document.createElement("tr");
  head.append(...["", "Y", "U", "V"].slice(0, count + 1).map((name) => element("th", name)));
  const rows = views.filter((view) => !view.against).map((view) => {
    const row = document.createElement("tr");
    row.append(element("th", view.title));
    for (let index = 0; index < count; index++) {
      const [a, b] = layersOf(view).map((name) => (index < data.layers[name].length ? sampleAt(name, index) : null));
      const text = a === null || (view.second && b === null) ? "–" : view.second ? signed(a - b) : String(a);
      row.append(element("td", text));
    }
    row.classList.toggle("current", view === views[state.view]);
    return row;
  });
  $("samples").replaceChildren(head, ...rows);
  const at = blockAt(state.x, state.y);
  const list = $("block");
  list.replaceChildren();
  if (at < 0) return;
  const say = (name, text) => list.append(element("dt", name), element("dd", text));
  say(tree() ? "CU (chroma tree)" : "CU", `${blocks[at + W]}×${blocks[at + H]} at ${blocks[at + X]}, ${blocks[at + Y]}`);
  say("mode", data.modes[blocks[at + MODE]][0]);
  if (data.tools[blocks[at + TOOLS]]) say("tools", data.tools[blocks[at + TOOLS]]);
  say("QP", String(qpOf(at)));
  say("depth", `${depthOf(at)} (QT ${blocks[at + QT]}, MT ${blocks[at + MT]})`);
};

// ---- position and zoom

const fitted = () => Math.min(canvas.clientWidth / width, canvas.clientHeight / height);
const place = (scale, left, top) => {
  state.scale = Math.min(64, Math.max(Math.min(fitted(), 1) / 2, scale));
  const keep = (at, size, extent) => {
    const margin = Math.min(80, extent / 3);
    return size <= extent ? Math.max(Math.min(at, extent - margin), margin - size) : Math.min(margin, Math.max(at, extent - size - margin));
  };
  state.left = keep(left, width * state.scale, canvas.clientWidth);
  state.top = keep(top, height * state.scale, canvas.clientHeight);
  draw();
};
const fit = (scale = fitted()) => {
  place(scale, (canvas.clientWidth - width * scale) / 2, (canvas.clientHeight - height * scale) / 2);
};
// Centre of zooming by buttons and keys: the crosshair if it is visible, else the middle of the canvas.
const focus = () => {
  const [x, y] = [(state.x + 0.5) * state.scale + state.left, (state.y + 0.5) * state.scale + state.top];
  const visible = state.x !== null && x > 0 && y > 0 && x < canvas.clientWidth && y < canvas.clientHeight;
  return visible ? [x, y] : [canvas.clientWidth / 2, canvas.clientHeight / 2];
};
const zoom = (factor, x = focus()[0], y = focus()[1]) => {
  const before = state.scale;
  const scale = Math.min(64, Math.max(Math.min(fitted(), 1) / 2, before * factor));
  place(scale, x - ((x - state.left) * scale) / before, y - ((y - state.top) * scale) / before);
};
const point = (x, y, follow = false) => {
  state.x = Math.max(0, Math.min(width - 1, x));
  state.y = Math.max(0, Math.min(height - 1, y));
  if (follow) {
    const [px, py] = [state.x * state.scale + state.left, state.y * state.scale + state.top];
    const dx = px < 20 ? 20 - px : Math.min(0, canvas.clientWidth - 20 - px);
    const dy = py < 20 ? 20 - py : Math.min(0, canvas.clientHeight - 20 - py);
    if (dx || dy) place(state.scale, state.left + dx, state.top + dy);
  }
  showValues();
  draw();
};
const pointAt = (event) => {
  const box = canvas.getBoundingClientRect();
  const x = Math.floor((event.clientX - box.left - state.left) / state.scale);
  const y = Math.floor((event.clientY - box.top - state.top) / state.scale);
  if (x >= 0 && y >= 0 && x < width && y < height) point(x, y);
};

// ---- pointers: one drags, two zoom; a mouse without a pressed button points

const pointers = new Map();
let travelled = 0;
canvas.addEventListener("pointerdown", (event) => {
  canvas.setPointerCapture(event.pointerId);
  pointers.set(event.pointerId, event);
  travelled = pointers.size > 1 ? Infinity : 0;
});
canvas.addEventListener("pointermove", (event) => {
  const before = pointers.get(event.pointerId);
  if (!before) {
    if (event.pointerType === "mouse") pointAt(event);
    return;
  }
  const [dx, dy] = [event.clientX - before.clientX, event.clientY - before.clientY];
  travelled += Math.hypot(dx, dy);
  if (pointers.size === 2) {
    const other = [...pointers.values()].find((pointer) => pointer.pointerId !== event.pointerId);
    const distance = (pointer) => Math.max(1, Math.hypot(pointer.clientX - other.clientX, pointer.clientY - other.clientY));
    const box = canvas.getBoundingClientRect();
    const middle = [(event.clientX + other.clientX) / 2 - box.left, (event.clientY + other.clientY) / 2 - box.top];
    place(state.scale, state.left + dx / 2, state.top + dy / 2);
    zoom(distance(event) / distance(before), ...middle);
  } else if (travelled > 3) {
    place(state.scale, state.left + dx, state.top + dy);
  }
  pointers.set(event.pointerId, event);
});
for (const end of ["pointerup", "pointercancel"]) {
  canvas.addEventListener(end, (event) => {
    if (pointers.delete(event.pointerId) && end === "pointerup" && travelled <= 3) pointAt(event);
  });
}
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  const box = canvas.getBoundingClientRect();
  const lines = event.deltaMode === 1 ? 16 : 1;
  zoom(2 ** (-event.deltaY * lines / 300), event.clientX - box.left, event.clientY - box.top);
}, { passive: false });
canvas.addEventListener("dblclick", (event) => {
  const box = canvas.getBoundingClientRect();
  zoom(2, event.clientX - box.left, event.clientY - box.top);
});

// ---- buttons and keys

const refresh = () => {
  const mark = (id, name, chosen) => [...$(id).children].forEach((node, i) => node.setAttribute(name, String(chosen(i))));
  mark("layers", "aria-checked", (i) => i === state.view);
  mark("components", "aria-checked", (i) => i === state.component);
  mark("overlays", "aria-pressed", (i) => (i ? state.fill === FILLS[i - 1] : state.grid));
  $("gain").value = Math.log2(state.gain);
  $("gain-text").textContent = state.gain;
  $("gain-label").hidden = !views[state.view].second;
  showValues();
  draw();
};
const choose = (index) => {
  if (index !== state.view && index >= 0 && index < views.length) [state.before, state.view] = [state.view, index];
  refresh();
  $("layers").children[state.view].scrollIntoView({ block: "nearest", inline: "nearest" });
};
const setComponent = (index) => {
  state.component = index % COMPONENTS.length;
  refresh();
};
const setGain = (exponent) => {
  state.gain = 2 ** Math.max(0, Math.min(6, exponent));
  refresh();
};
const FILLS = ["modes", "QP", "depth"];
const toggle = (index) => {
  if (!index) state.grid = !state.grid;
  else state.fill = state.fill === FILLS[index - 1] ? null : FILLS[index - 1];
  refresh();
};
const button = (text, key, act, role) => {
  const node = element("button", text);
  node.type = "button";
  if (role) node.setAttribute("role", role);
  if (key) node.append(element("small", key));
  node.addEventListener("click", act);
  return node;
};
const digit = (index) => (index < 10 ? String((index + 1) % 10) : "");
views.forEach((view, i) => $("layers").append(button(view.title, digit(i), () => choose(i), "radio")));
if (COMPONENTS.length > 1) COMPONENTS.forEach((name, i) => $("components").append(button(name, "", () => setComponent(i), "radio")));
else $("components").hidden = true;
["grid", ...FILLS].forEach((name, i) => $("overlays").append(button(name, "gmqd"[i], () => toggle(i))));
$("gain").addEventListener("input", () => setGain(Number($("gain").value)));
$("in").addEventListener("click", () => zoom(1.5));
$("out").addEventListener("click", () => zoom(1 / 1.5));
$("fit").addEventListener("click", () => fit());
$("one").addEventListener("click", () => zoom(1 / state.scale));
const help = () => {
  $("help").hidden = !$("help").hidden;
  $("help-button").setAttribute("aria-expanded", String(!$("help").hidden));
};
$("help-button").addEventListener("click", help);

const KEYS = {
  " ": () => choose(state.before),
  c: () => setComponent(state.component + 1),
  g: () => toggle(0),
  m: () => toggle(1),
  q: () => toggle(2),
  d: () => toggle(3),
  "+": () => zoom(1.5),
  "=": () => zoom(1.5),
  "-": () => zoom(1 / 1.5),
  f: () => fit(),
  o: () => zoom(1 / state.scale),
  "[": () => setGain(Math.log2(state.gain) - 1),
  "]": () => setGain(Math.log2(state.gain) + 1),
  "?": help,
  Escape: () => $("help").hidden || help(),
};
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
document.addEventListener("keydown", (event) => {
  const { key, target } = event;
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (ARROWS[key] && target.tagName !== "INPUT") {
    const step = event.shiftKey ? 8 : 1;
    const [x, y] = state.x === null ? [width >> 1, height >> 1] : [state.x, state.y];
    point(x + ARROWS[key][0] * step, y + ARROWS[key][1] * step, true);
  } else if (key === " " && target.tagName === "BUTTON") {
    return;
  } else if (/^[0-9]$/.test(key)) {
    choose((Number(key) + 9) % 10);
  } else if (KEYS[key]) {
    KEYS[key]();
  } else {
    return;
  }
  event.preventDefault();
});

// ---- start

const start = async () => {
  if (typeof DecompressionStream === "undefined") {
    $("message").textContent = "This page needs a browser from 2023 or later (DecompressionStream).";
    return;
  }
  fit();
  let extent = [canvas.clientWidth, canvas.clientHeight];
  new ResizeObserver(() => {
    const fits = Math.abs(state.scale - Math.min(extent[0] / width, extent[1] / height)) < 1e-6;
    extent = [canvas.clientWidth, canvas.clientHeight];
    if (fits) fit();
    else place(state.scale, state.left, state.top);
  }).observe(canvas);
  blocks = new Int16Array(await unpack(data.blocks));
  mapBlocks();
  if (!blocks.length) $("overlays").hidden = true;
  refresh();
  await Promise.all(planesOf("decoded").map((entry) => entry.ready));
  render();
  document.body.dataset.ready = "decoded";
  for (const name of Object.keys(data.layers)) {
    for (const entry of planesOf(name)) await entry.ready;
    showValues();
  }
  document.body.dataset.ready = "all";
};
start();
