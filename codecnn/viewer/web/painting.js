// Layers, differences of layers, and their conversion to colours.

const TITLES = { unfiltered: "before in-loop filters" };
const NETWORKS = Object.keys(data.layers).filter((name) => name.startsWith("filtered"));
const networkTitle = (layer) => (NETWORKS.length > 1 ? data.layers[layer] : "network");
const layerTitle = (layer) => {
  if (NETWORKS.includes(layer)) return NETWORKS.length > 1 ? `filtered, ${data.layers[layer]}` : "filtered";
  return TITLES[layer] || layer;
};
const GREY = pictures.every((picture) => picture.sizes.length === 1);
const COMPONENTS = GREY ? ["Y"] : ["colour", "Y", "U", "V"];

// Views: the layers, then differences of two layers (first minus second).
const views = Object.keys(data.layers).map((name) => ({ title: layerTitle(name), first: name }));
const has = (name) => name in data.layers;
const difference = (title, first, second) => {
  if (has(first) && has(second)) views.push({ title, first, second });
};
difference("residual", "unfiltered", "prediction");
difference("effect of in-loop filters", "decoded", "unfiltered");
for (const name of NETWORKS) difference(`effect of ${networkTitle(name)}`, name, "decoded");
difference("coding error", "decoded", "original");
for (const name of NETWORKS) difference(`error after ${networkTitle(name)}`, name, "original");
if (has("original")) {
  for (const name of NETWORKS) {
    const title = NETWORKS.length > 1 ? `change of error, ${networkTitle(name)}` : "change of error";
    views.push({ title, first: name, second: "decoded", against: "original" });
  }
}
state.view = views.findIndex((view) => view.first === "decoded" && !view.second);

const layersOf = (view) => [view.first, view.second, view.against].filter(Boolean);
const available = (index, view) => layersOf(view).every((name) => name in pictures[index].layers);
const component = () => (state.component ? state.component - 1 : 0);

const shades = (index, view, at, target) => {
  const [a, b, c] = layersOf(view).map((name) => planesOf(index, name)[at]?.samples);
  const shift = pictures[index].bitDepth - 8;
  const scale = state.gain / 2 ** shift;
  if (!a || (view.second && !b)) {
    target.fill(0xff202020);
  } else if (view.against) {
    for (let i = 0; i < target.length; i++) {
      const change = Math.abs(a[i] - c[i]) - Math.abs(b[i] - c[i]);
      const rest = 255 - Math.min(255, Math.abs(change) * scale);
      target[i] = change < 0 ? 0xffff0000 | (rest << 8) | rest : 0xff0000ff | (rest << 16) | (rest << 8);
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
const colours = (index, view, target) => {
  const { sizes, bitDepth } = pictures[index];
  const [luma, cb, cr] = planesOf(index, view.first).map((entry) => entry.samples);
  const [[w, h], [cw, ch]] = sizes;
  const right = cw < w ? 1 : 0;
  const down = ch < h ? 1 : 0;
  const unit = 1 / (1 << (bitDepth - 8));
  const table = new Uint8ClampedArray(target.buffer);
  for (let y = 0, at = 0; y < h; y++) {
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

// Painted pictures by picture, view, component and magnification; the oldest are dropped.
const painted = new Map();
const keyOf = (index, view) => [index, views.indexOf(view), state.component, view.second ? state.gain : 0].join();
const isReady = (index, view) =>
  painted.has(keyOf(index, view)) || layersOf(view).every((name) => planesOf(index, name).every((entry) => entry.samples));
const prepare = (index, view) => {
  if (!available(index, view) || painted.has(keyOf(index, view))) return Promise.resolve();
  return Promise.all(layersOf(view).flatMap((name) => planesOf(index, name)).map((entry) => entry.ready));
};
// Return the canvas of a view; its samples must have been prepared.
const paint = (index, view) => {
  const key = keyOf(index, view);
  let canvas = painted.get(key);
  if (!canvas) {
    const { sizes } = pictures[index];
    const inColour = COMPONENTS[state.component] === "colour" && !view.second && sizes.length === 3;
    const [w, h] = inColour ? sizes[0] : sizes[Math.min(component(), sizes.length - 1)];
    canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [w, h];
    const image = new ImageData(w, h);
    const target = new Uint32Array(image.data.buffer);
    if (inColour) colours(index, view, target);
    else shades(index, view, component(), target);
    canvas.getContext("2d").putImageData(image, 0, 0);
  }
  painted.delete(key);
  painted.set(key, canvas);
  let total = 0;
  for (const { width, height } of painted.values()) total += 4 * width * height;
  for (const [other, { width, height }] of painted) {
    if (total <= MEMORY || painted.size <= 2) break;
    total -= 4 * width * height;
    painted.delete(other);
  }
  return canvas;
};
