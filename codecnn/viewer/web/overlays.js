// Overlays: values of CUs and CTUs as colours, lines of blocks, motion and boundary strengths, and their legends.

const NO_REFERENCE = -(2 ** 31);

// Hue and saturation of prediction modes; the hue of an angular mode is its direction.
const KINDS = {
  intra: [210, 45],
  planar: [210, 8],
  DC: [210, 30],
  MIP: [45, 75],
  IBC: [300, 70],
  palette: [15, 45],
  AMVP: [120, 60],
  merge: [155, 65],
  MMVD: [180, 70],
  affine: [30, 90],
  "affine merge": [52, 90],
  "temporal subblocks": [0, 75],
  geometric: [262, 65],
  CIIP: [328, 75],
  inter: [120, 60],
  none: [0, 0],
};
const INTRA_KINDS = ["planar", "DC", "angular", "MIP"];
const PALER = 0.24; // lightness that a skipped CU has more
const SKIP = /(^|, )skip$/;
const hueOf = ([, , kind, dx, dy]) => {
  if (kind !== "angular") return KINDS[kind];
  return [(Math.atan2(-dy, -dx) / Math.PI) * 360 * 0.9 + 180, 75];
};
const predictionOf = ([, , kind]) => (INTRA_KINDS.includes(kind) ? "intra" : kind);
const hsl = (h, s, l) => {
  const hue = ((h % 360) + 360) % 360;
  const f = (n) => {
    const k = (n + hue / 30 + 24) % 12;
    return Math.round(255 * (l - s * Math.min(l, 1 - l) * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
  };
  return 0xff000000 | (f(4) << 16) | (f(8) << 8) | f(0);
};
const css = (colour) => `rgb(${colour & 255} ${(colour >> 8) & 255} ${(colour >> 16) & 255})`;
const kindColour = (kind, paler) => hsl(KINDS[kind][0], KINDS[kind][1] / 100, paler ? 0.5 + PALER : 0.5);
const rainbow = (share) => hsl(240 - 240 * share, 0.8, 0.5);
const gainColour = (gain, most) => {
  const lightness = 0.95 - 0.45 * Math.sqrt(Math.min(1, Math.abs(gain) / most));
  return hsl(gain < 0 ? 0 : 220, 0.9, lightness);
};

const mostGain = data.limits.gain?.[1] || 1; // dB of the strongest colour
const hasCus = pictures.some(({ cus }) => cus > 0);
const hasArray = (name) => pictures.some(({ detail }) => name in detail.arrays);
const LINES = [
  { name: "grid", key: "g", title: "CUs and CTUs", exists: (d) => d.blocks.count > 0, anywhere: hasCus },
  { name: "transforms", key: "t", title: "transform units", exists: (d) => d.transforms, anywhere: hasArray("transforms") },
  { name: "motion", key: "v", title: "motion vectors", exists: (d) => d.vectors, anywhere: hasArray("vectors") },
  { name: "strengths", key: "e", title: "boundary strengths of deblocking", exists: (d) => d.strengths, anywhere: hasArray("strengths") },
];
const FILLS = [
  { name: "modes", key: "m", title: "prediction modes", exists: (d) => d.blocks.count > 0, anywhere: hasCus },
  { name: "prediction", key: "k", title: "kinds of prediction", exists: (d) => d.blocks.count > 0, anywhere: hasCus },
  { name: "QP", key: "q", title: "QP of the CUs", exists: (d) => d.blocks.count > 0, anywhere: hasCus },
  { name: "depth", key: "d", title: "depth of the CUs", exists: (d) => d.blocks.count > 0, anywhere: hasCus },
  { name: "bits", key: "b", title: "bits of the CTUs", exists: (d) => d.bits, anywhere: "bits" in data.limits },
];
if (NETWORKS.length && has("original")) {
  const exists = (d) => d.networks[network()];
  FILLS.push({ name: "gain", key: "n", title: "gain of the CTUs", ofNetwork: true, exists, anywhere: true });
  FILLS.push({ name: "decisions", key: "u", title: "CTUs that an encoder filters", ofNetwork: true, exists, anywhere: true });
}
// The network whose values are shown: that of the layer, else the first.
const network = () => {
  const shown = [views[state.view], state.split === null ? null : views[state.split]];
  return shown.map((view) => view?.first).find((layer) => NETWORKS.includes(layer)) || NETWORKS[0];
};
const fill = () => FILLS.find((each) => each.name === state.fill);

// In a picture with two coding trees, the chroma planes have CUs of their own.
const tree = () => (state.component > 1 && detailOf(state.index)?.owners[1] ? 1 : 0);
const blockAt = (x, y) => {
  const owner = detailOf(state.index)?.owners[tree()];
  if (!owner) return -1;
  const [left, top] = info().offset;
  return owner[((y + top) >> 2) * cellsOf(info())[0] + ((x + left) >> 2)];
};
const qpOf = (d, i) => d.blocks.qp[i];
const depthOf = (d, i) => d.blocks.qt[i] + d.blocks.mt[i];
// Letter of the component whose values of CTUs are shown: the component of the view if the network filters it, else y.
const gainLetter = (d) => (LETTERS[component()] in d.networks[network()].gain ? LETTERS[component()] : "y");

// Values of CTUs: bits are those of the coded picture, values of networks those of the shown picture.
const ctusOf = (overlay) => {
  const d = detailOf(state.index);
  const { width, height, ctu, offset } = info();
  const [left, top] = overlay.ofNetwork ? [0, 0] : offset;
  const columns = Math.ceil((width + left) / ctu);
  const rows = Math.ceil((height + top) / ctu);
  let values = d.bits;
  if (overlay.ofNetwork) values = d.networks[network()][overlay.name === "gain" ? "gain" : "on"][gainLetter(d)];
  return { values, columns, rows, left, top };
};
const ctuAt = (overlay, x, y) => {
  const { values, columns, left, top } = ctusOf(overlay);
  return values[Math.floor((y + top) / info().ctu) * columns + Math.floor((x + left) / info().ctu)];
};
const ctuColour = (overlay, value) => {
  if (value === null || value === undefined) return 0;
  if (overlay.name === "decisions") return value ? hsl(140, 0.7, 0.45) : hsl(0, 0, 0.15);
  if (overlay.name === "gain") return gainColour(value, mostGain);
  const [low, high] = data.limits.bits.map((bits) => Math.log2(1 + bits));
  return rainbow(high > low ? (Math.log2(1 + value) - low) / (high - low) : 0.5);
};
const isCtuFill = (overlay) => overlay.name === "bits" || overlay.ofNetwork;

// ---- colours of the CUs, one pixel a 4x4 cell

const fills = document.createElement("canvas");
let fillKey = "";
const paintFill = (overlay) => {
  const key = [state.index, overlay.name, tree()].join();
  if (key === fillKey) return;
  fillKey = key;
  const d = detailOf(state.index);
  const owner = d.owners[tree()];
  [fills.width, fills.height] = cellsOf(info());
  const image = new ImageData(fills.width, fills.height);
  const target = new Uint32Array(image.data.buffer);
  const skipped = d.tools.map((text) => SKIP.test(text));
  const modes = [0, PALER].map((paler) =>
    d.modes.map((mode) => {
      const [h, s] = overlay.name === "modes" ? hueOf(mode) : KINDS[predictionOf(mode)];
      return hsl(h, s / 100, 0.5 + paler);
    }),
  );
  const valueOf = overlay.name === "QP" ? qpOf : depthOf;
  const [low, high] = data.limits[overlay.name] || [0, 0];
  for (let cell = 0; cell < target.length; cell++) {
    const i = owner ? owner[cell] : -1;
    if (i < 0) continue;
    if (overlay.name === "modes") target[cell] = modes[0][d.blocks.mode[i]];
    else if (overlay.name === "prediction") target[cell] = modes[Number(skipped[d.blocks.tools[i]])][d.blocks.mode[i]];
    else target[cell] = rainbow(high > low ? (valueOf(d, i) - low) / (high - low) : 0.5);
  }
  fills.getContext("2d").putImageData(image, 0, 0);
};

// ---- drawing; `at` converts positions in the coded picture to pixels of the canvas

const drawText = (pen, text, x, y) => {
  pen.strokeText(text, x, y);
  pen.fillText(text, x, y);
};
const textStyle = (pen, size) => {
  pen.font = `${size}px system-ui, sans-serif`;
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  pen.lineWidth = 3;
  pen.lineJoin = "round";
  pen.strokeStyle = "#000c";
  pen.fillStyle = "#fff";
};

const drawOverlays = (pen, at) => {
  const d = detailOf(state.index);
  if (!d) return;
  const overlay = fill();
  pen.save();
  pen.beginPath();
  pen.rect(at.left, at.top, info().width * at.scale, info().height * at.scale);
  pen.clip();
  if (overlay?.exists(d)) {
    if (isCtuFill(overlay)) drawCtus(pen, at, overlay);
    else drawFill(pen, at, overlay);
  }
  pen.globalAlpha = Math.min(1, 2 * state.opacity);
  const labels = overlay?.exists(d) && !isCtuFill(overlay);
  if (d.blocks.count && (state.lines.has("grid") || labels)) drawBlocks(pen, at, d, labels ? overlay : null);
  if (state.lines.has("transforms") && d.transforms) drawTransforms(pen, at, d);
  if (state.lines.has("strengths") && d.strengths) drawStrengths(pen, at, d);
  if (state.lines.has("motion") && d.vectors) drawMotion(pen, at, d);
  pen.restore();
};

const drawFill = (pen, at, overlay) => {
  paintFill(overlay);
  pen.globalAlpha = state.opacity;
  pen.imageSmoothingEnabled = false;
  pen.drawImage(fills, at.x(0), at.y(0), fills.width * 4 * at.scale, fills.height * 4 * at.scale);
};

const drawCtus = (pen, at, overlay) => {
  const { values, columns, rows, left, top } = ctusOf(overlay);
  const [ox, oy] = info().offset;
  const side = info().ctu;
  const size = Math.round(11 * at.ratio);
  for (const pass of [0, 1]) {
    pen.globalAlpha = pass ? Math.min(1, 2 * state.opacity) : state.opacity;
    textStyle(pen, size);
    for (let row = 0; row < rows; row++) {
      for (let column = 0; column < columns; column++) {
        const value = values[row * columns + column];
        const [x0, y0] = [at.x(column * side + ox - left), at.y(row * side + oy - top)];
        const [w, h] = [side * at.scale, side * at.scale];
        if (value === null || !at.sees(x0, y0, w, h)) continue;
        if (!pass) {
          pen.fillStyle = css(ctuColour(overlay, value));
          pen.fillRect(x0, y0, w, h);
        } else if (w > 3.4 * size && overlay.name !== "decisions") {
          drawText(pen, overlay.name === "gain" ? signed(value, 2) : String(value), x0 + w / 2, y0 + h / 2);
        }
      }
    }
  }
};

const strokeGrid = (pen, at, side) => {
  const { width, height, offset } = info();
  const [right, bottom] = [width + offset[0], height + offset[1]];
  pen.beginPath();
  for (let x = 0; x <= right; x += side) {
    pen.moveTo(at.line(at.x(x)), at.y(0));
    pen.lineTo(at.line(at.x(x)), at.y(bottom));
  }
  for (let y = 0; y <= bottom; y += side) {
    pen.moveTo(at.x(0), at.line(at.y(y)));
    pen.lineTo(at.x(right), at.line(at.y(y)));
  }
  pen.stroke();
};

const GRID_COLOURS = { CU: "rgb(255 235 120 / 0.65)", CTU: "rgb(255 120 90 / 0.9)" };
const drawBlocks = (pen, at, d, overlay) => {
  const { blocks } = d;
  const channel = tree();
  const size = Math.round(11 * at.ratio);
  const labels = [];
  pen.beginPath();
  for (let i = 0; i < blocks.count; i++) {
    if (blocks.channel[i] !== channel) continue;
    const [x0, y0] = [at.line(at.x(blocks.x[i])), at.line(at.y(blocks.y[i]))];
    const [w, h] = [blocks.w[i] * at.scale, blocks.h[i] * at.scale];
    if (!at.sees(x0, y0, w, h)) continue;
    pen.moveTo(x0 + w, y0);
    pen.lineTo(x0, y0);
    pen.lineTo(x0, y0 + h);
    if (overlay && w > 2.4 * size && h > 1.6 * size) labels.push([i, x0, y0, w, h]);
  }
  pen.lineWidth = 1;
  if (state.lines.has("grid")) {
    pen.strokeStyle = GRID_COLOURS.CU;
    pen.stroke();
    pen.strokeStyle = GRID_COLOURS.CTU;
    if (at.scale * info().ctu > 24) strokeGrid(pen, at, info().ctu);
  }
  textStyle(pen, size);
  for (const [i, x, y, w, h] of labels) {
    const mode = d.modes[blocks.mode[i]];
    const text = { modes: mode[1], prediction: mode[1], QP: qpOf(d, i), depth: depthOf(d, i) }[overlay.name];
    if (pen.measureText(text).width > w) continue;
    const angular = overlay.name === "modes" && mode[2] === "angular" && Math.min(w, h) > 3.2 * size;
    if (angular) drawAngle(pen, mode, x, y, w, h);
    drawText(pen, String(text), x + w / 2, y + h / 2);
  }
};

// Line through the centre of the block; the dot marks the direction of the reference samples.
const drawAngle = (pen, [, , , dx, dy], x, y, w, h) => {
  const reach = Math.min(w, h) * 0.42;
  const length = Math.hypot(dx, dy);
  const [ux, uy] = [dx / length, dy / length];
  const [cx, cy] = [x + w / 2, y + h / 2];
  pen.save();
  pen.beginPath();
  for (const [from, to] of [[0.45, 1], [-0.45, -1]]) {
    pen.moveTo(cx + ux * reach * from, cy + uy * reach * from);
    pen.lineTo(cx + ux * reach * to, cy + uy * reach * to);
  }
  pen.lineWidth = 2;
  pen.strokeStyle = "#ffffffd0";
  pen.stroke();
  pen.beginPath();
  pen.arc(cx + ux * reach, cy + uy * reach, 3, 0, 7);
  pen.fill();
  pen.restore();
};

const TRANSFORM_COLOURS = { coded: "rgb(90 255 150)", "not coded": "rgb(90 255 150 / 0.35)" };
const drawTransforms = (pen, at, d) => {
  const { transforms } = d;
  pen.lineWidth = Math.max(1, at.ratio);
  for (const coded of [0, 1]) {
    pen.beginPath();
    for (let i = 0; i < transforms.count; i++) {
      if (transforms.channel[i] !== tree() || transforms.cbf[i] !== coded) continue;
      const [x, y] = [at.line(at.x(transforms.x[i])), at.line(at.y(transforms.y[i]))];
      const [w, h] = [transforms.w[i] * at.scale, transforms.h[i] * at.scale];
      // The outline lies inside of the block, so that those of neighbours and the grid of CUs are seen, too.
      if (at.sees(x, y, w, h)) pen.rect(x + 1, y + 1, Math.max(1, Math.round(w) - 2), Math.max(1, Math.round(h) - 2));
    }
    pen.strokeStyle = TRANSFORM_COLOURS[coded ? "coded" : "not coded"];
    pen.stroke();
  }
};

const STRENGTH_COLOURS = { 1: "#ffd21e", 2: "#ff4d4d" };
const drawStrengths = (pen, at, d) => {
  const [, rows, columns] = d.strengthsShape;
  const [left, top] = info().offset.map((value) => value & ~3);
  const side = 4 * at.scale;
  pen.lineWidth = Math.max(1, Math.min(3 * at.ratio, side / 5));
  for (const strength of [1, 2]) {
    pen.beginPath();
    for (let row = 0; row < rows; row++) {
      const y = at.line(at.y(top + 4 * row));
      if (y + side < 0 || y > at.height) continue;
      for (let column = 0; column < columns; column++) {
        const cell = row * columns + column;
        const x = at.line(at.x(left + 4 * column));
        if (d.strengths[cell] === strength) {
          pen.moveTo(x, y);
          pen.lineTo(x, y + side);
        }
        if (d.strengths[rows * columns + cell] === strength) {
          pen.moveTo(x, y);
          pen.lineTo(x + side, y);
        }
      }
    }
    pen.strokeStyle = STRENGTH_COLOURS[strength];
    pen.stroke();
  }
};

const MOTION_COLOURS = { L0: "#ffb020", L1: "#38d6ff" };
// Vectors of the 4x4 cell at a position of the coded picture: [dx, dy, POC] of each list, in 1/16 sample, or null.
const motionAt = (d, x, y) => {
  const [, rows, columns] = d.referencesShape;
  const size = rows * columns;
  const cell = (y >> 2) * columns + (x >> 2);
  return [0, 1].map((list) => {
    const poc = d.references[list * size + cell];
    return poc === NO_REFERENCE ? null : [d.vectors[2 * list * size + cell], d.vectors[(2 * list + 1) * size + cell], poc];
  });
};
const isSubblock = ([, , kind]) => ["affine", "affine merge", "temporal subblocks", "geometric"].includes(kind);
const drawMotion = (pen, at, d) => {
  const { blocks } = d;
  const arrows = [[], []];
  const add = (x, y) => {
    motionAt(d, x, y).forEach((vector, list) => vector && arrows[list].push([at.x(x), at.y(y), ...vector]));
  };
  for (let i = 0; i < blocks.count; i++) {
    if (blocks.channel[i]) continue;
    const [x, y, w, h] = [blocks.x[i], blocks.y[i], blocks.w[i], blocks.h[i]];
    if (!at.sees(at.x(x), at.y(y), w * at.scale, h * at.scale)) continue;
    if (Math.max(w, h) * at.scale < 5 * at.ratio) continue;
    // Subblocks have vectors of their own; they are drawn as densely as they can be told apart.
    let step = 4;
    while (step * at.scale < 26 * at.ratio) step *= 2;
    if (!isSubblock(d.modes[blocks.mode[i]]) || step >= Math.max(w, h)) add(x + (w >> 1), y + (h >> 1));
    else for (let dy = 0; dy < h; dy += step) for (let dx = 0; dx < w; dx += step) add(x + dx + Math.min(step, w) / 2, y + dy + Math.min(step, h) / 2);
  }
  for (const list of [0, 1]) drawArrows(pen, at, arrows[list], MOTION_COLOURS[`L${list}`]);
};
const drawArrows = (pen, at, arrows, colour) => {
  const head = 5 * at.ratio;
  for (const pass of ["#000a", colour]) {
    pen.beginPath();
    for (const [x, y, dx, dy] of arrows) {
      const [ex, ey] = [x + (dx / 16) * at.scale, y + (dy / 16) * at.scale];
      const length = Math.hypot(ex - x, ey - y);
      if (length < 2) {
        pen.rect(x - 1, y - 1, 2, 2);
        continue;
      }
      pen.moveTo(x, y);
      pen.lineTo(ex, ey);
      const [ux, uy] = [(ex - x) / length, (ey - y) / length];
      const size = Math.min(head, length / 2);
      pen.moveTo(ex - size * (ux + 0.6 * uy), ey - size * (uy - 0.6 * ux));
      pen.lineTo(ex, ey);
      pen.lineTo(ex - size * (ux - 0.6 * uy), ey - size * (uy + 0.6 * ux));
    }
    pen.lineWidth = (pass === colour ? 1.4 : 3) * at.ratio;
    pen.strokeStyle = pass;
    pen.stroke();
  }
};

// ---- legends

const swatch = (colour, text) => ({ colour, text });
const legendOf = (overlay, d) => {
  const title = overlay.title;
  switch (overlay.name) {
    case "grid":
      return { title, entries: Object.entries(GRID_COLOURS).map(([name, colour]) => swatch(colour, name)) };
    case "transforms":
      return { title, entries: Object.entries(TRANSFORM_COLOURS).map(([name, colour]) => swatch(colour, name)) };
    case "strengths":
      return { title, entries: Object.entries(STRENGTH_COLOURS).map(([name, colour]) => swatch(colour, name)) };
    case "motion": {
      const entries = Object.entries(MOTION_COLOURS).map(([name, colour]) => swatch(colour, name));
      return { title, entries, text: "An arrow leads from a block to its reference, in samples of the picture; a dot is no displacement. Vectors are those before DMVR." };
    }
    case "modes": {
      const kinds = [...new Set(d.modes.map((mode) => mode[2]))].filter((kind) => kind !== "none");
      const entries = kinds.filter((kind) => kind !== "angular").map((kind) => swatch(css(kindColour(kind)), kind));
      if (!kinds.includes("angular")) return { title, entries };
      const angles = [0, 0.25, 0.5, 0.75, 1].map((share) => {
        const angle = (share - 0.25) * Math.PI;
        return css(hsl(hueOf([0, 0, "angular", -Math.cos(angle), -Math.sin(angle)])[0], 0.75, 0.5));
      });
      return { title, entries, gradient: angles, low: "angular: from below left", high: "from above right" };
    }
    case "prediction": {
      const kinds = [...new Set(d.modes.map(predictionOf))].filter((kind) => kind !== "none");
      const entries = kinds.map((kind) => swatch(css(kindColour(kind)), kind));
      const skips = d.tools.some((text) => SKIP.test(text));
      return { title, entries, text: skips ? "Paler: skip, without a residual." : "" };
    }
    case "QP":
    case "depth":
    case "bits": {
      const [low, high] = data.limits[overlay.name];
      const shares = low === high ? [0.5, 0.5] : [0, 0.25, 0.5, 0.75, 1];
      const text = overlay.name === "bits" ? "Logarithmic; parameters of SAO and ALF included." : "";
      return { title, gradient: shares.map((share) => css(rainbow(share))), low: number(low), high: number(high), text };
    }
    default: {
      const letter = gainLetter(d);
      const of = `${title}: ${networkTitle(network())}, ${letter.toUpperCase()}`;
      if (overlay.name === "decisions") {
        const entries = [swatch(css(ctuColour(overlay, 1)), "filtered"), swatch(css(ctuColour(overlay, 0)), "not filtered")];
        const scale = d.networks[network()].scale[letter];
        return { title: of, entries, text: `Chosen by rate and distortion; factor of the network's residual: ${scale}.` };
      }
      const gradient = [-1, -0.5, 0, 0.5, 1].map((gain) => css(gainColour(gain, mostGain)));
      return { title: of, gradient, low: `−${mostGain} dB`, high: `+${mostGain} dB` };
    }
  }
};
const showLegends = () => {
  const d = detailOf(state.index);
  const shown = d ? [...LINES.filter(({ name }) => state.lines.has(name)), fill()].filter((each) => each?.exists(d)) : [];
  $("legends").replaceChildren(
    ...shown.map((overlay) => {
      const { title, entries = [], gradient, low, high, text } = legendOf(overlay, d);
      const node = element("div", "");
      node.className = "legend";
      node.dataset.overlay = overlay.name;
      node.append(element("strong", title));
      for (const entry of entries) {
        const item = element("span", entry.text);
        item.className = "swatch";
        item.style.setProperty("--colour", entry.colour);
        node.append(item);
      }
      if (gradient) {
        const bar = element("div", "");
        bar.className = "gradient";
        bar.style.background = `linear-gradient(90deg, ${gradient.join(", ")})`;
        const ends = element("div", "");
        ends.className = "ends";
        ends.append(element("span", low), element("span", high));
        node.append(bar, ends);
      }
      if (text) node.append(element("small", text));
      return node;
    }),
  );
};
