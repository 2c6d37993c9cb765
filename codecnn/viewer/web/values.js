// Values under the pointer, and facts of the picture.

const element = (name, text) => {
  const node = document.createElement(name);
  node.textContent = text;
  return node;
};
const number = (value) => value.toLocaleString("en");
const signed = (value, digits = 0) => {
  const text = Math.abs(value).toFixed(digits);
  return value > 0 ? `+${text}` : value < 0 && Number(text) ? `−${text}` : text;
};
const decibel = (value) => (value === null ? "∞" : value.toFixed(2));
const describe = (list, rows) => {
  list.replaceChildren(...rows.flatMap(([name, text]) => [element("dt", name), element("dd", text)]));
};

const sampleAt = (layer, index) => {
  const entry = planesOf(state.index, layer)[index];
  if (!entry?.samples) return null;
  const { sizes, width, height } = info();
  const [w, h] = sizes[index];
  return entry.samples[Math.floor((state.y * h) / height) * w + Math.floor((state.x * w) / width)];
};

const showValues = () => {
  const inside = state.x !== null && state.x < info().width && state.y < info().height;
  if (!inside) return;
  $("place").textContent = `x ${state.x}, y ${state.y}`;
  const count = info().sizes.length;
  const head = document.createElement("tr");
  head.append(...["", "Y", "U", "V"].slice(0, count + 1).map((name) => element("th", name)));
  const rows = views.filter((view) => !view.against && available(state.index, view)).map((view) => {
    const row = document.createElement("tr");
    row.append(element("th", view.title));
    for (let index = 0; index < count; index++) {
      const [a, b] = layersOf(view).map((name) => sampleAt(name, index));
      const text = a === null || (view.second && b === null) ? "–" : view.second ? signed(a - b) : String(a);
      row.append(element("td", text));
    }
    row.classList.toggle("current", view === views[state.view]);
    return row;
  });
  $("samples").replaceChildren(head, ...rows);
  describe($("block"), blockRows());
};

let valuesTimer = 0;
const showValuesLater = () => {
  clearTimeout(valuesTimer);
  valuesTimer = setTimeout(showValues, 30);
};

const KERNELS = ["DCT-II", "DST-VII", "DCT-VIII"];
const transformAt = (d, x, y) => {
  const t = d.transforms;
  for (let i = 0; t && i < t.count; i++) {
    const inside = t.x[i] <= x && x < t.x[i] + t.w[i] && t.y[i] <= y && y < t.y[i] + t.h[i];
    if (inside && t.channel[i] === tree()) return i;
  }
  return -1;
};
const exact = (value) => (value > 0 ? `+${value}` : value < 0 ? `−${-value}` : "0");
const vectorText = ([dx, dy, poc]) => `${exact(dx / 16)}, ${exact(dy / 16)} to POC ${poc}`;

const blockRows = () => {
  const d = detailOf(state.index);
  const rows = [];
  if (!d) return rows;
  const [x, y] = [state.x + info().offset[0], state.y + info().offset[1]];
  const i = blockAt(state.x, state.y);
  if (i >= 0) {
    const { blocks } = d;
    rows.push([tree() ? "CU (chroma tree)" : "CU", `${blocks.w[i]}×${blocks.h[i]} at ${blocks.x[i]}, ${blocks.y[i]}`]);
    rows.push(["mode", d.modes[blocks.mode[i]][0]]);
    for (const tool of d.tools[blocks.tools[i]].split(", ").filter(Boolean)) {
      const [name, ...rest] = tool.split(" ");
      const named = ["ISP", "MRL", "BDPCM", "LFNST", "MTS", "AMVR", "BCW"].includes(name);
      rows.push(named ? [name, rest.join(" ")] : [tool, "yes"]);
    }
    if (d.vectors) {
      motionAt(d, x, y).forEach((vector, list) => vector && rows.push([`L${list}`, vectorText(vector)]));
    }
    rows.push(["QP", String(qpOf(d, i))], ["depth", `${depthOf(d, i)} (QT ${blocks.qt[i]}, MT ${blocks.mt[i]})`]);
  }
  const at = transformAt(d, x, y);
  if (at >= 0) {
    const t = d.transforms;
    const kernel = t.ts[at] ? "skipped" : `${KERNELS[t.hor[at]]} × ${KERNELS[t.ver[at]]}`;
    const levels = t.cbf[at] ? `${kernel}, ${t.levels[at]} levels` : "not coded";
    rows.push(["transform", `${t.w[at]}×${t.h[at]} at ${t.x[at]}, ${t.y[at]}: ${levels}`]);
  }
  if (d.strengths) {
    const [, height, width] = d.strengthsShape;
    const [column, row] = [(x >> 2) - (info().offset[0] >> 2), (y >> 2) - (info().offset[1] >> 2)];
    const cell = row * width + column;
    rows.push(["strength", `left ${d.strengths[cell]}, above ${d.strengths[height * width + cell]}`]);
  }
  for (const overlay of FILLS.filter((each) => isCtuFill(each) && each.exists(d))) {
    const value = ctuAt(overlay, state.x, state.y);
    const title = `CTU ${overlay.name}${overlay.ofNetwork ? ` ${gainLetter(d).toUpperCase()}` : ""}`;
    if (overlay.name === "bits") rows.push([title, number(value)]);
    else if (overlay.name === "gain") rows.push([title, value === null ? "–" : `${signed(value, 2)} dB`]);
    else rows.push([title, value ? "filtered" : "not filtered"]);
  }
  return rows;
};

const HASHES = { ok: "equal", differs: "differs", none: "none in the stream", "": "not compared" };
const pictureText = (picture) => {
  const parts = [`picture ${picture.number}`];
  if (picture.poc !== null && picture.poc !== picture.number) parts.push(`POC ${picture.poc}`);
  parts.push(`${picture.type} slices, QP ${picture.qps.join(", ")}`);
  if (picture.temporal !== null) parts.push(`temporal layer ${picture.temporal}`);
  if (picture.bits !== null) parts.push(`${number(picture.bits)} bits`);
  const quality = picture.psnr.decoded;
  if (quality) parts.push(`PSNR Y ${decibel(quality[0])} dB`);
  return parts.join(" · ");
};
const showFacts = () => {
  const picture = info();
  const rows = [["format", picture.format], ["slices", `${picture.type}, QP ${picture.qps.join(", ")}`]];
  if (picture.poc !== null) rows.push(["POC", String(picture.poc)]);
  if (picture.temporal !== null) rows.push(["temporal layer", String(picture.temporal)]);
  if (picture.bits !== null) rows.push(["bits", number(picture.bits)]);
  if (picture.cus) rows.push(["CUs", number(picture.cus)], ["hash", HASHES[picture.hash]]);
  for (const [layer, values] of Object.entries(picture.psnr)) {
    rows.push([`PSNR ${layerTitle(layer)}`, values.map((value, i) => `${"YUV"[i]} ${decibel(value)}`).join("  ")]);
  }
  describe($("facts"), rows);
  $("notes").replaceChildren(...picture.notes.map((note) => element("p", note)));
};
