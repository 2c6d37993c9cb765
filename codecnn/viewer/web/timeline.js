// Strip of pictures, chart of their PSNR, bits and QP, and stepping and playing.

const SVG = "http://www.w3.org/2000/svg";
const svg = (name, attributes, text) => {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
};

const TYPE_COLOURS = { I: "#ff8a65", P: "#ffd54f", B: "#64b5f6" };
const LINE_COLOURS = { Y: "#f1f5f9", U: "#5ea8ff", V: "#ff7b7b" };
const NETWORK_COLOURS = ["#5fe08b", "#e38cff", "#ffd54f"];
const MARGIN = 78; // for the labels of the axes

const pngLink = document.createElement("a");
const pictureName = () => `${data.title.replace(/, pictures? .*$/, "").replace(/[^\w.-]+/g, "_")}_${info().number}`;

// Lines of the chart: PSNR of the decoded picture by component, and of the luma of each network.
const chartLines = () => {
  const lines = ["Y", "U", "V"].map((name, i) => ({
    name,
    lane: i ? "dB U V" : "dB Y",
    colour: LINE_COLOURS[name],
    values: pictures.map(({ psnr }) => psnr.decoded?.[i] ?? null),
  }));
  NETWORKS.forEach((layer, i) => {
    const name = NETWORKS.length > 1 ? `Y ${data.layers[layer]}` : "Y filtered";
    lines.push({ name, lane: "dB Y", colour: NETWORK_COLOURS[i % 3], values: pictures.map(({ psnr }) => psnr[layer]?.[0] ?? null) });
  });
  return lines.filter(({ values }) => values.some((value) => value !== null));
};

const drawChart = () => {
  const chart = $("chart");
  const lines = chartLines();
  const hasBits = pictures.some(({ bits }) => bits !== null);
  const lanes = [];
  let height = 4;
  const lane = (name, size) => {
    lanes.push({ name, top: height, size });
    height += size + 7;
  };
  if (lines.length) lane("dB Y", 40);
  if (lines.length > 1 && !GREY) lane("dB U V", 24);
  if (hasBits) lane("bits", 24);
  lane("QP", 20);
  height += 14;
  const column = Math.max(9, Math.min(80, ($("timeline").clientWidth - MARGIN - 24) / pictures.length));
  const width = MARGIN + column * pictures.length;
  chart.setAttribute("width", width);
  chart.setAttribute("height", height);
  const nodes = [];
  const xOf = (i) => MARGIN + (i + 0.5) * column;
  const axis = (name, at, low, high) => {
    nodes.push(svg("text", { x: 2, y: at.top + 9, class: "axis" }, name));
    nodes.push(svg("text", { x: MARGIN - 5, y: at.top + 9, class: "axis end" }, high));
    nodes.push(svg("text", { x: MARGIN - 5, y: at.top + at.size, class: "axis end" }, low));
    nodes.push(svg("line", { x1: MARGIN, x2: width, y1: at.top + at.size + 0.5, y2: at.top + at.size + 0.5, class: "base" }));
  };
  pictures.forEach((picture, i) => {
    const shade = svg("rect", { x: MARGIN + i * column, y: 0, width: column, height, class: "column" });
    if (i === state.index) shade.classList.add("current");
    nodes.push(shade);
  });
  for (const at of lanes) {
    if (at.name.startsWith("dB")) {
      const ofLane = lines.filter(({ lane: name }) => name === at.name);
      const all = ofLane.flatMap(({ values }) => values).filter((value) => value !== null);
      const [low, high] = [Math.min(...all), Math.max(...all)];
      const yOf = (value) => at.top + at.size - ((value - low) / (high - low || 1)) * at.size;
      axis(at.name, at, low.toFixed(1), high.toFixed(1));
      for (const { colour, values } of ofLane) {
        const points = values.map((value, i) => (value === null ? null : `${xOf(i)},${yOf(value)}`)).filter(Boolean);
        nodes.push(svg("polyline", { points: points.join(" "), stroke: colour, class: "curve" }));
        for (const point of points) nodes.push(svg("circle", { cx: point.split(",")[0], cy: point.split(",")[1], r: 2, fill: colour }));
      }
    } else if (at.name === "bits") {
      // Logarithmic: an I picture may have hundreds of times the bits of a B picture.
      const all = pictures.map(({ bits }) => bits).filter((bits) => bits !== null);
      const [low, high] = [Math.log2(1 + Math.min(...all)) - 0.5, Math.log2(1 + Math.max(...all))];
      axis("bits", at, number(Math.min(...all)), number(Math.max(...all)));
      pictures.forEach(({ bits, type }, i) => {
        if (bits === null) return;
        const size = ((Math.log2(1 + bits) - low) / (high - low || 1)) * at.size;
        nodes.push(svg("rect", { x: xOf(i) - column * 0.35, y: at.top + at.size - size, width: column * 0.7, height: size, fill: TYPE_COLOURS[type] || "#9fb0c3" }));
      });
    } else {
      const all = pictures.flatMap(({ qps }) => qps);
      const [low, high] = [Math.min(...all), Math.max(...all)];
      axis("QP", at, high > low ? low : "", high);
      pictures.forEach(({ qps, type }, i) => {
        for (const qp of qps) {
          const y = at.top + at.size - 3 - ((qp - low) / (high - low || 1)) * (at.size - 8);
          nodes.push(svg("circle", { cx: xOf(i), cy: y, r: 3, fill: TYPE_COLOURS[type] || "#9fb0c3" }));
        }
      });
    }
  }
  pictures.forEach((picture, i) => {
    const label = `${picture.type}${picture.temporal ?? ""}`;
    if (column >= 14) nodes.push(svg("text", { x: xOf(i), y: height - 3, class: "axis middle", fill: TYPE_COLOURS[picture.type] || "#9fb0c3" }, label));
    const hit = svg("rect", { x: MARGIN + i * column, y: 0, width: column, height, class: "hit" });
    hit.append(svg("title", {}, pictureText(picture)));
    hit.addEventListener("click", () => step(i));
    nodes.push(hit);
  });
  chart.replaceChildren(...nodes);
  const entry = (name, colour) => {
    const item = element("span", name);
    item.className = "swatch";
    item.style.setProperty("--colour", colour);
    return item;
  };
  const types = [...new Set(pictures.map(({ type }) => type))];
  $("chart-legend").replaceChildren(
    ...lines.map(({ name, colour }) => entry(`PSNR ${name}`, colour)),
    ...types.map((type) => entry(`${type} picture`, TYPE_COLOURS[type] || "#9fb0c3")),
    element("span", pictures.some(({ temporal }) => temporal !== null) ? "letter and number below: slice type, temporal layer" : ""),
  );
};

const markTimeline = () => {
  [...$("strip").children].forEach((node, i) => {
    node.setAttribute("aria-current", String(i === state.index));
    if (i === state.index && !$("timeline").hidden) {
      // scrollIntoView would move the page, too.
      const strip = $("strip");
      const [left, right] = [node.offsetLeft - strip.offsetLeft, node.offsetLeft - strip.offsetLeft + node.offsetWidth];
      if (left < strip.scrollLeft || right > strip.scrollLeft + strip.clientWidth) strip.scrollLeft = left - strip.clientWidth / 2;
    }
  });
  [...$("chart").querySelectorAll(".column")].forEach((node, i) => node.classList.toggle("current", i === state.index));
  $("which").textContent = pictureText(info());
  $("first").disabled = $("previous").disabled = state.index === 0;
  $("last").disabled = $("next").disabled = state.index === pictures.length - 1;
};

const step = (index) => {
  const target = Math.max(0, Math.min(pictures.length - 1, index));
  if (target === state.index) return;
  const before = info();
  state.index = target;
  if (info().width !== before.width || info().height !== before.height) fit();
  refresh();
  // The next picture is read while this one is looked at.
  if (target + 1 < pictures.length) prepare(target + 1, views[state.view]);
};

let playing = false;
const sleep = (milliseconds) => new Promise((done) => setTimeout(done, Math.max(0, milliseconds)));
const play = async () => {
  playing = !playing;
  $("play").firstChild.textContent = playing ? "pause" : "play";
  while (playing) {
    const start = performance.now();
    const next = (state.index + 1) % pictures.length;
    await Promise.all([next, state.index].map((index) => prepare(index, views[state.view])));
    if (!playing) break;
    await sleep(1000 / Number($("speed").value) - (performance.now() - start));
    if (playing) step(next);
    await new Promise(requestAnimationFrame);
  }
};
const pause = () => {
  if (playing) play();
};

const buildTimeline = () => {
  if (pictures.length === 1) return;
  $("timeline").hidden = false;
  pictures.forEach((picture, i) => {
    const node = document.createElement("button");
    node.type = "button";
    const image = document.createElement("img");
    image.src = picture.thumbnail;
    image.alt = "";
    node.append(image, element("span", `${picture.number} ${picture.type} ${picture.qps.join(",")}`));
    node.title = pictureText(picture);
    node.addEventListener("click", () => step(i));
    $("strip").append(node);
  });
  drawChart();
  markTimeline();
  const go = (id, target) => $(id).addEventListener("click", () => {
    pause();
    step(target());
  });
  go("first", () => 0);
  go("previous", () => state.index - 1);
  go("next", () => state.index + 1);
  go("last", () => pictures.length - 1);
  $("play").addEventListener("click", play);
  new ResizeObserver(() => drawChart()).observe($("timeline"));
};
