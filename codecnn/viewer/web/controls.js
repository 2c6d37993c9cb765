// Drawing, position and zoom, pointers, buttons, keys, links, and the start of the page.

const canvas = $("canvas");

// ---- drawing

let drawRequested = false;
const draw = () => {
  if (drawRequested) return;
  drawRequested = true;
  requestAnimationFrame(() => {
    drawRequested = false;
    render();
  });
};
const splitView = () => (state.split === null ? null : views[state.split]);

const render = () => {
  const { index } = state;
  const shown = [views[state.view], splitView()].filter(Boolean);
  const message = $("message");
  const missing = shown.find((view) => !available(index, view));
  if (!missing && !shown.every((view) => isReady(index, view))) {
    message.textContent = "Reading the picture …";
    message.hidden = document.body.dataset.ready !== undefined;
    Promise.all(shown.map((view) => prepare(index, view))).then(draw, fail);
    return;
  }
  message.hidden = !missing;
  if (missing) message.textContent = `Picture ${info().number} has no layer for “${missing.title}”.`;
  const ratio = devicePixelRatio || 1;
  const [w, h] = [Math.round(canvas.clientWidth * ratio), Math.round(canvas.clientHeight * ratio)];
  if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
  const pen = canvas.getContext("2d");
  pen.fillStyle = "#0b1017";
  pen.fillRect(0, 0, w, h);
  const { width, height, offset } = info();
  const scale = state.scale * ratio;
  const [left, top] = [Math.round(state.left * ratio), Math.round(state.top * ratio)];
  const at = {
    scale, ratio, left, top, width: w, height: h,
    x: (x) => (x - offset[0]) * scale + left,
    y: (y) => (y - offset[1]) * scale + top,
    line: (value) => Math.round(value) + 0.5,
    sees: (x, y, bw, bh) => x + bw >= 0 && y + bh >= 0 && x <= w && y <= h,
  };
  if (!missing) {
    pen.imageSmoothingQuality = "high";
    const drawView = (view) => {
      pen.imageSmoothingEnabled = scale < 1;
      pen.drawImage(paint(index, view), left, top, width * scale, height * scale);
    };
    drawView(shown[0]);
    if (shown[1]) {
      pen.save();
      pen.beginPath();
      pen.rect(0, 0, state.divider * w, h);
      pen.clip();
      drawView(shown[1]);
      pen.restore();
    }
  }
  if (detailOf(index)) drawOverlays(pen, at);
  else readDetail(index).then(detailArrived, fail);
  if (state.x !== null && state.x < width && state.y < height) drawCross(pen, at);
  if (shown[1] && !missing) drawDivider(pen, at, shown);
  $("scale").textContent = `${(100 * state.scale).toFixed(state.scale < 0.1 ? 1 : 0)} %`;
  document.body.dataset.shown = String(info().number);
};
const detailArrived = () => {
  refresh();
};
const fail = (error) => {
  $("message").hidden = false;
  $("message").textContent = `The picture cannot be shown: ${error.message}.`;
};

const drawCross = (pen, at) => {
  const i = blockAt(state.x, state.y);
  pen.lineWidth = Math.max(1, at.ratio);
  pen.strokeStyle = "#4ea1ff";
  if (i >= 0) {
    const { blocks } = detailOf(state.index);
    pen.strokeRect(at.x(blocks.x[i]), at.y(blocks.y[i]), blocks.w[i] * at.scale, blocks.h[i] * at.scale);
  }
  const side = Math.max(at.scale, 5 * at.ratio);
  const middle = [(state.x + 0.5) * at.scale + at.left, (state.y + 0.5) * at.scale + at.top];
  pen.strokeStyle = "#fff";
  pen.strokeRect(middle[0] - side / 2, middle[1] - side / 2, side, side);
};

const drawDivider = (pen, at, [right, left]) => {
  const x = Math.round(state.divider * at.width);
  pen.fillStyle = "#fff";
  pen.fillRect(x - 1, 0, 2, at.height);
  pen.beginPath();
  pen.arc(x, at.height / 2, 9 * at.ratio, 0, 7);
  pen.fill();
  pen.font = `${12 * at.ratio}px system-ui, sans-serif`;
  pen.textBaseline = "middle";
  for (const [view, side] of [[left, -1], [right, 1]]) {
    const space = pen.measureText(view.title).width + 12 * at.ratio;
    const start = side < 0 ? x - space - 6 * at.ratio : x + 6 * at.ratio;
    pen.fillStyle = "#0b1017cc";
    pen.fillRect(start, 6 * at.ratio, space, 22 * at.ratio);
    pen.fillStyle = "#fff";
    pen.textAlign = "left";
    pen.fillText(view.title, start + 6 * at.ratio, 17 * at.ratio);
  }
};

// ---- position and zoom

const fitted = () => Math.min(canvas.clientWidth / info().width, canvas.clientHeight / info().height);
const LARGEST = 64;
const limitScale = (scale) => Math.min(LARGEST, Math.max(Math.min(fitted(), 1) / 2, scale));
const place = (scale, left, top) => {
  const { width, height } = info();
  state.scale = limitScale(scale);
  const keep = (at, size, extent) => {
    const margin = Math.min(80, extent / 3);
    return size <= extent ? Math.max(Math.min(at, extent - margin), margin - size) : Math.min(margin, Math.max(at, extent - size - margin));
  };
  state.left = keep(left, width * state.scale, canvas.clientWidth);
  state.top = keep(top, height * state.scale, canvas.clientHeight);
  linkLater();
  draw();
};
const fit = (scale = fitted()) => {
  const { width, height } = info();
  place(scale, (canvas.clientWidth - width * scale) / 2, (canvas.clientHeight - height * scale) / 2);
};
const isFitted = () => Math.abs(state.scale - fitted()) < 1e-6;
// Centre of zooming by buttons and keys: the crosshair if it is visible, else the middle of the canvas.
const focus = () => {
  const [x, y] = [(state.x + 0.5) * state.scale + state.left, (state.y + 0.5) * state.scale + state.top];
  const visible = state.x !== null && x > 0 && y > 0 && x < canvas.clientWidth && y < canvas.clientHeight;
  return visible ? [x, y] : [canvas.clientWidth / 2, canvas.clientHeight / 2];
};
const zoom = (factor, x = focus()[0], y = focus()[1]) => {
  const before = state.scale;
  const scale = limitScale(before * factor);
  place(scale, x - ((x - state.left) * scale) / before, y - ((y - state.top) * scale) / before);
};
const point = (x, y, follow = false) => {
  state.x = Math.max(0, Math.min(info().width - 1, x));
  state.y = Math.max(0, Math.min(info().height - 1, y));
  if (follow) {
    const [px, py] = [state.x * state.scale + state.left, state.y * state.scale + state.top];
    const dx = px < 20 ? 20 - px : Math.min(0, canvas.clientWidth - 20 - px);
    const dy = py < 20 ? 20 - py : Math.min(0, canvas.clientHeight - 20 - py);
    if (dx || dy) place(state.scale, state.left + dx, state.top + dy);
  }
  showValues();
  linkLater();
  draw();
};
const pointAt = (event) => {
  const box = canvas.getBoundingClientRect();
  const x = Math.floor((event.clientX - box.left - state.left) / state.scale);
  const y = Math.floor((event.clientY - box.top - state.top) / state.scale);
  if (x >= 0 && y >= 0 && x < info().width && y < info().height) point(x, y);
};

// ---- pointers: one drags the picture or the divider, two zoom; a mouse without a pressed button points

const pointers = new Map();
let travelled = 0;
let dividing = false;
const nearDivider = (event) => {
  const box = canvas.getBoundingClientRect();
  return state.split !== null && Math.abs(event.clientX - box.left - state.divider * box.width) < 12;
};
const moveDivider = (event) => {
  const box = canvas.getBoundingClientRect();
  state.divider = Math.max(0.02, Math.min(0.98, (event.clientX - box.left) / box.width));
  draw();
};
canvas.addEventListener("pointerdown", (event) => {
  canvas.setPointerCapture(event.pointerId);
  dividing = !pointers.size && nearDivider(event);
  pointers.set(event.pointerId, event);
  travelled = pointers.size > 1 ? Infinity : 0;
});
canvas.addEventListener("pointermove", (event) => {
  const before = pointers.get(event.pointerId);
  if (!before) {
    canvas.style.cursor = nearDivider(event) ? "ew-resize" : "";
    if (event.pointerType === "mouse") pointAt(event);
    return;
  }
  const [dx, dy] = [event.clientX - before.clientX, event.clientY - before.clientY];
  travelled += Math.hypot(dx, dy);
  if (dividing) {
    moveDivider(event);
  } else if (pointers.size === 2) {
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
    if (pointers.delete(event.pointerId) && end === "pointerup" && travelled <= 3 && !dividing) pointAt(event);
    dividing = false;
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

const OVERLAYS = [...LINES, ...FILLS];
const isOn = (overlay) => (LINES.includes(overlay) ? state.lines.has(overlay.name) : state.fill === overlay.name);
const refresh = () => {
  const mark = (id, name, chosen) => [...$(id).children].forEach((node, i) => node.setAttribute(name, String(chosen(i))));
  const d = detailOf(state.index);
  mark("layers", "aria-checked", (i) => i === state.view);
  mark("components", "aria-checked", (i) => i === state.component);
  mark("overlays", "aria-pressed", (i) => isOn(OVERLAYS[i]));
  // An overlay that no picture has is hidden; one that only this picture lacks cannot be pressed.
  [...$("overlays").children].forEach((node, i) => {
    node.disabled = Boolean(d) && !OVERLAYS[i].exists(d);
  });
  $("gain").value = Math.log2(state.gain);
  $("gain-text").textContent = state.gain;
  $("gain-label").hidden = ![views[state.view], splitView()].some((view) => view?.second);
  $("opacity").value = Math.round(100 * state.opacity);
  $("opacity-text").textContent = `${Math.round(100 * state.opacity)} %`;
  $("split").setAttribute("aria-pressed", String(state.split !== null));
  $("split-view").hidden = state.split === null;
  if (state.split !== null) $("split-view").value = String(state.split);
  showFacts();
  showValues();
  showLegends();
  if (pictures.length > 1) markTimeline();
  linkLater();
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
const toggle = (overlay) => {
  if (LINES.includes(overlay)) {
    if (!state.lines.delete(overlay.name)) state.lines.add(overlay.name);
  } else {
    state.fill = state.fill === overlay.name ? null : overlay.name;
  }
  refresh();
};
// Without another choice the left half shows the decoded picture, or for that one what the layers offer next.
const setSplit = (on) => {
  const decoded = views.findIndex((view) => view.first === "decoded" && !view.second);
  const other = NETWORKS.length > 1 ? views.findIndex((view) => view.first === NETWORKS[0]) : decoded;
  const left = [state.before, other, decoded, 0, 1].find((view) => view !== state.view && view < views.length);
  state.split = on && left !== undefined ? left : null;
  refresh();
};
const savePicture = () => {
  render();
  canvas.toBlob((blob) => {
    pngLink.href = URL.createObjectURL(blob);
    pngLink.download = `${pictureName()}_${views[state.view].title.replace(/[^\w-]+/g, "_")}.png`;
    pngLink.click();
    setTimeout(() => URL.revokeObjectURL(pngLink.href), 10000);
  });
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
views.forEach((view, i) => {
  $("layers").append(button(view.title, digit(i), () => choose(i), "radio"));
  const option = element("option", view.title);
  option.value = String(i);
  $("split-view").append(option);
});
if (COMPONENTS.length > 1) COMPONENTS.forEach((name, i) => $("components").append(button(name, "", () => setComponent(i), "radio")));
else $("components").hidden = true;
for (const overlay of OVERLAYS) {
  const node = button(overlay.name, overlay.key, () => toggle(overlay));
  node.title = overlay.title;
  node.hidden = !overlay.anywhere;
  $("overlays").append(node);
}
$("gain").addEventListener("input", () => setGain(Number($("gain").value)));
$("opacity").addEventListener("input", () => {
  state.opacity = Number($("opacity").value) / 100;
  refresh();
});
$("split").addEventListener("click", () => setSplit(state.split === null));
$("split-view").addEventListener("change", () => {
  state.split = Number($("split-view").value);
  refresh();
});
$("save").addEventListener("click", savePicture);
$("in").addEventListener("click", () => zoom(1.5));
$("out").addEventListener("click", () => zoom(1 / 1.5));
$("fit").addEventListener("click", () => fit());
$("one").addEventListener("click", () => zoom(1 / state.scale));
const help = () => {
  $("help").hidden = !$("help").hidden;
  $("help-button").setAttribute("aria-expanded", String(!$("help").hidden));
};
$("help-button").addEventListener("click", help);
const toggleTimeline = () => {
  if (pictures.length > 1) $("timeline").hidden = !$("timeline").hidden;
};
const stepBy = (count) => {
  pause();
  step(state.index + count);
};

const KEYS = {
  " ": () => choose(state.before),
  ArrowLeft: () => stepBy(-1),
  ArrowRight: () => stepBy(1),
  Home: () => stepBy(-pictures.length),
  End: () => stepBy(pictures.length),
  p: () => pictures.length > 1 && play(),
  c: () => setComponent(state.component + 1),
  s: () => setSplit(state.split === null),
  x: savePicture,
  h: toggleTimeline,
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
for (const overlay of OVERLAYS) if (overlay.key) KEYS[overlay.key] = () => toggle(overlay);
const DIRECTIONS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
document.addEventListener("keydown", (event) => {
  const { key, target } = event;
  if (event.metaKey || event.altKey || (event.ctrlKey && !event.shiftKey)) return;
  const typing = target.tagName === "INPUT" || target.tagName === "SELECT";
  if (DIRECTIONS[key] && event.shiftKey && !typing) {
    const distance = event.ctrlKey ? 8 : 1;
    const [x, y] = state.x === null ? [info().width >> 1, info().height >> 1] : [state.x, state.y];
    point(x + DIRECTIONS[key][0] * distance, y + DIRECTIONS[key][1] * distance, true);
  } else if (event.ctrlKey || (typing && key in { ...DIRECTIONS, Home: 0, End: 0, " ": 0 })) {
    return;
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

// ---- links: the fragment of the address names picture, position, layer and overlays

const link = () => {
  const parts = new URLSearchParams();
  if (pictures.length > 1) parts.set("picture", info().number);
  if (state.x !== null) parts.set("at", `${state.x},${state.y}`);
  if (!isFitted()) {
    const middle = [[canvas.clientWidth, state.left], [canvas.clientHeight, state.top]];
    parts.set("zoom", Number(state.scale.toFixed(3)));
    parts.set("centre", middle.map(([extent, start]) => Number(((extent / 2 - start) / state.scale).toFixed(1))).join(","));
  }
  parts.set("layer", views[state.view].title);
  if (state.split !== null) parts.set("split", views[state.split].title);
  if (state.component) parts.set("component", COMPONENTS[state.component]);
  parts.set("overlays", OVERLAYS.filter(isOn).map(({ name }) => name).join(","));
  return `#${parts}`;
};
let linkTimer = 0;
const linkLater = () => {
  clearTimeout(linkTimer);
  linkTimer = setTimeout(() => {
    if (!playing) history.replaceState(null, "", link());
  }, 150);
};
const follow = () => {
  const parts = new URLSearchParams(location.hash.slice(1));
  const pair = (name) => {
    const values = (parts.get(name) || "").split(",").map(Number);
    return values.length === 2 && values.every(Number.isFinite) ? values : null;
  };
  const viewOf = (name) => views.findIndex((view) => view.title === parts.get(name));
  const index = pictures.findIndex((picture) => String(picture.number) === parts.get("picture"));
  if (index >= 0) state.index = index;
  if (viewOf("layer") >= 0) state.view = viewOf("layer");
  state.split = viewOf("split") >= 0 ? viewOf("split") : null;
  if (COMPONENTS.includes(parts.get("component"))) state.component = COMPONENTS.indexOf(parts.get("component"));
  if (parts.has("overlays")) {
    const names = parts.get("overlays").split(",");
    state.lines = new Set(LINES.map(({ name }) => name).filter((name) => names.includes(name)));
    state.fill = FILLS.find(({ name }) => names.includes(name))?.name ?? null;
  }
  fit();
  const [scale, centre, at] = [Number(parts.get("zoom")), pair("centre"), pair("at")];
  if (scale > 0 && centre) {
    const limited = limitScale(scale);
    place(limited, canvas.clientWidth / 2 - centre[0] * limited, canvas.clientHeight / 2 - centre[1] * limited);
  }
  if (at) point(...at);
  refresh();
};
window.addEventListener("hashchange", follow);

// ---- start

const start = async () => {
  if (typeof DecompressionStream === "undefined") {
    $("message").textContent = "This page needs a browser from 2023 or later (DecompressionStream).";
    return;
  }
  buildTimeline();
  let extent = [canvas.clientWidth, canvas.clientHeight];
  follow();
  new ResizeObserver(() => {
    const { width, height } = info();
    const fits = Math.abs(state.scale - Math.min(extent[0] / width, extent[1] / height)) < 1e-6;
    extent = [canvas.clientWidth, canvas.clientHeight];
    if (fits) fit();
    else place(state.scale, state.left, state.top);
  }).observe(canvas);
  await prepare(state.index, views[state.view]);
  render();
  document.body.dataset.ready = "picture";
  await readDetail(state.index);
  refresh();
  // The other layers of the picture fill the table of samples.
  for (const layer of Object.keys(info().layers)) {
    for (const entry of planesOf(state.index, layer)) await entry.ready;
    showValues();
  }
  if (state.index + 1 < pictures.length) prepare(state.index + 1, views[state.view]);
  document.body.dataset.ready = "all";
};
start().catch(fail);
