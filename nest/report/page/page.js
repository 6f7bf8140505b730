"use strict";

(() => {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const redraws = [];

  function setTheme(dark) {
    root.dataset.theme = dark ? "dark" : "light";
    button.setAttribute("aria-pressed", String(dark));
    button.textContent = dark ? "Light" : "Dark";
    redraws.forEach((redraw) => redraw());
  }

  const asked = new URLSearchParams(location.search).get("theme");
  setTheme(asked ? asked === "dark" : system.matches);
  system.addEventListener("change", (event) => setTheme(event.matches));
  button.addEventListener("click", () => setTheme(root.dataset.theme !== "dark"));

  const menu = document.getElementById("replica");
  const map = document.querySelector(".map");
  if (menu && map) {
    menu.addEventListener("change", () => {
      map.classList.toggle("chosen", menu.value !== "");
      map.querySelectorAll("[data-r]").forEach((cell) => cell.classList.toggle("picked", cell.dataset.r === menu.value));
    });
  }

  const run = JSON.parse(document.getElementById("run").textContent);
  const KINDS = ["receive", "forward", "recompute", "backward", "send", "weight"];
  const ROW = run.lanes.length > 16 ? 15 : 24;
  const LABEL = 30;
  const AXIS = 22;

  function unpack(lane) {
    let start = 0;
    const passes = lane.passes.map((number, at) => {
      start += lane.starts[at];
      const [name, chunk, parts] = lane.types[number % lane.types.length];
      const length = parts.reduce((sum, part) => sum + part[1], 0);
      return { start, end: start + length, microbatch: Math.floor(number / lane.types.length), chunk, name, parts };
    });
    const gap = lane.gap && { at: lane.gap[0], end: lane.gap[1], passes: lane.gap[2], busy: lane.gap[3] };
    if (gap) gap.start = passes[gap.at - 1].end;
    return { passes, gap };
  }

  const lanes = run.lanes.map(unpack);
  const whole = Math.max(1, run.makespan);
  const box = document.querySelector(".timeline");
  const canvas = box.querySelector(".lanes");
  const overview = box.querySelector(".overview");
  const readout = box.querySelector(".readout");
  const longest = Math.max(1, ...lanes.map((lane) => Math.max(...lane.passes.slice(0, 2).map((each) => each.end - each.start))));
  const view = { from: 0, to: Math.min(whole, Math.max(longest * 26, longest * 3 * lanes.length)) };

  function text(units) {
    const seconds = units * run.unit * run.tick_s;
    for (const [factor, name] of [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]]) {
      if (seconds >= factor) return String(Number((seconds / factor).toPrecision(4))) + " " + name;
    }
    return seconds ? (seconds / 1e-9).toPrecision(4) + " ns" : "0 s";
  }

  function prepared(surface, height) {
    const ratio = window.devicePixelRatio || 1;
    const width = surface.clientWidth;
    surface.style.height = height + "px";
    surface.width = Math.round(width * ratio);
    surface.height = Math.round(height * ratio);
    const pen = surface.getContext("2d");
    pen.scale(ratio, ratio);
    pen.clearRect(0, 0, width, height);
    return [pen, width];
  }

  function colours() {
    const style = getComputedStyle(root);
    const read = (name) => style.getPropertyValue("--" + name).trim();
    return { kinds: KINDS.map(read), idle: read("idle"), ink: read("ink"), soft: read("soft"), line: read("line"), card: read("card") };
  }

  function firstAfter(passes, time) {
    let low = 0;
    let high = passes.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (passes[middle].end <= time) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  function drawLane(pen, lane, geometry, paint) {
    const { top, height, x, from, to, right } = geometry;
    pen.fillStyle = paint.idle;
    pen.fillRect(x(Math.max(from, 0)), top, right - x(Math.max(from, 0)), height);
    if (lane.gap && lane.gap.end > from && lane.gap.start < to) drawGap(pen, lane.gap, geometry, paint);
    for (let at = firstAfter(lane.passes, from); at < lane.passes.length && lane.passes[at].start < to; at += 1) {
      const pass = lane.passes[at];
      let now = pass.start;
      for (const [kind, length] of pass.parts) {
        const left = Math.max(x(now), x(from));
        const wide = Math.min(x(now + length), right) - left;
        pen.fillStyle = paint.kinds[kind];
        if (wide > 0) pen.fillRect(left, top, Math.max(wide - (wide > 4 && height > 10 ? 1 : 0), 0.6), height);
        now += length;
      }
      if (height > 10) drawNumber(pen, pass, geometry, paint);
    }
  }

  function drawGap(pen, gap, { top, height, x, from, to, right }, paint) {
    const left = Math.max(x(gap.start), x(from));
    const end = Math.min(x(gap.end), right);
    pen.save();
    pen.beginPath();
    pen.rect(left, top, end - left, height);
    pen.clip();
    pen.globalAlpha = 0.55;
    pen.fillStyle = paint.kinds[3];
    pen.fillRect(left, top, end - left, height);
    pen.strokeStyle = paint.card;
    pen.lineWidth = 2;
    for (let place = left - height; place < end; place += 8) {
      pen.beginPath();
      pen.moveTo(place, top + height);
      pen.lineTo(place + height, top);
      pen.stroke();
    }
    pen.restore();
  }

  function drawNumber(pen, pass, { top, height, x }, paint) {
    const main = pass.parts[pass.parts.length - 1];
    if (!main) return;
    const wide = x(pass.end) - x(pass.end - main[1]);
    const label = run.chunks > 1 ? `${pass.microbatch}.${pass.chunk}` : String(pass.microbatch);
    if (wide < 7 + 6.5 * label.length || x(pass.end - main[1]) < LABEL) return;
    pen.fillStyle = root.dataset.theme === "dark" ? "#0d131a" : "#ffffff";
    pen.textAlign = "center";
    pen.fillText(label, x(pass.end) - wide / 2, top + height / 2 + 0.5);
  }

  function drawLanes() {
    const paint = colours();
    const [pen, width] = prepared(canvas, lanes.length * ROW + AXIS);
    const right = width;
    const scale = (right - LABEL) / (view.to - view.from);
    const x = (time) => LABEL + (time - view.from) * scale;
    pen.font = `${ROW > 16 ? 11 : 9}px system-ui, sans-serif`;
    pen.textBaseline = "middle";
    drawAxis(pen, x, right, paint);
    lanes.forEach((lane, at) => {
      const top = at * ROW + 2;
      pen.fillStyle = paint.soft;
      pen.textAlign = "right";
      pen.fillText(String(at), LABEL - 8, top + (ROW - 4) / 2);
      drawLane(pen, lane, { top, height: ROW - 4, x, from: view.from, to: view.to, right }, paint);
    });
  }

  function drawAxis(pen, x, right, paint) {
    const wide = view.to - view.from;
    const units = run.unit * run.tick_s;
    const rough = (wide * units * 95) / Math.max(right - LABEL, 1);
    const power = 10 ** Math.floor(Math.log10(rough || 1));
    const step = ([1, 2, 5, 10].find((each) => each * power >= rough) || 10) * power / units;
    pen.textAlign = "center";
    for (let at = Math.ceil(view.from / step) * step; at <= view.to; at += step) {
      pen.fillStyle = paint.line;
      pen.fillRect(x(at), 0, 1, lanes.length * ROW + 4);
      pen.fillStyle = paint.soft;
      const place = Math.min(Math.max(x(at), LABEL + 14), right - 26);
      pen.fillText(text(at), place, lanes.length * ROW + 13);
    }
  }

  function drawOverview() {
    const paint = colours();
    const [pen, width] = prepared(overview, 40);
    const x = (time) => LABEL + (time / whole) * (width - LABEL);
    const height = 40 / lanes.length;
    lanes.forEach((lane, at) => {
      drawLane(pen, lane, { top: at * height, height: Math.max(height - 0.4, 0.6), x, from: 0, to: whole, right: width }, paint);
    });
    const left = x(view.from);
    const end = Math.max(x(view.to), left + 3);
    pen.fillStyle = paint.card;
    pen.globalAlpha = 0.62;
    pen.fillRect(LABEL, 0, left - LABEL, 40);
    pen.fillRect(end, 0, width - end, 40);
    pen.globalAlpha = 1;
    pen.strokeStyle = paint.ink;
    pen.lineWidth = 1.5;
    pen.strokeRect(left + 0.75, 0.75, Math.max(end - left - 1.5, 2), 38.5);
  }

  function tell() {
    readout.textContent = `Shown: ${text(view.from)} to ${text(view.to)} of ${text(whole)}`;
  }

  function draw() {
    drawLanes();
    drawOverview();
    tell();
  }

  function show(from, to) {
    const wide = Math.min(whole, Math.max(to - from, longest / 4));
    view.from = Math.min(Math.max(0, from), whole - wide);
    view.to = view.from + wide;
    draw();
  }

  function zoom(factor, around) {
    const middle = around === undefined ? (view.from + view.to) / 2 : around;
    show(middle - (middle - view.from) * factor, middle + (view.to - middle) * factor);
  }

  const actions = {
    in: () => zoom(0.5),
    out: () => zoom(2),
    all: () => show(0, whole),
    start: () => show(0, view.to - view.from),
    end: () => show(whole - (view.to - view.from), whole),
    left: () => show(view.from - (view.to - view.from) / 4, view.to - (view.to - view.from) / 4),
    right: () => show(view.from + (view.to - view.from) / 4, view.to + (view.to - view.from) / 4),
  };
  const keys = { "+": "in", "=": "in", "-": "out", "0": "all", Home: "start", End: "end", ArrowLeft: "left", ArrowRight: "right" };

  document.querySelectorAll("[data-zoom]").forEach((each) => each.addEventListener("click", actions[each.dataset.zoom]));
  canvas.addEventListener("keydown", (event) => {
    const action = keys[event.key];
    if (!action || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    actions[action]();
  });

  function timeAt(event, surface, from, to) {
    const place = event.clientX - surface.getBoundingClientRect().left - LABEL;
    return from + (place / (surface.clientWidth - LABEL)) * (to - from);
  }

  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.shiftKey) return;
    event.preventDefault();
    zoom((event.deltaY || event.deltaX) > 0 ? 1.25 : 0.8, timeAt(event, canvas, view.from, view.to));
  }, { passive: false });

  let held = null;
  canvas.addEventListener("pointerdown", (event) => {
    held = { x: event.clientX, from: view.from, to: view.to };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointerup", () => { held = null; });
  canvas.addEventListener("pointermove", (event) => {
    if (held) {
      const moved = ((held.x - event.clientX) / (canvas.clientWidth - LABEL)) * (held.to - held.from);
      show(held.from + moved, held.to + moved);
      return;
    }
    point(event);
  });
  canvas.addEventListener("pointerleave", tell);

  function point(event) {
    const at = Math.floor((event.clientY - canvas.getBoundingClientRect().top) / ROW);
    const time = timeAt(event, canvas, view.from, view.to);
    const lane = lanes[at];
    if (!lane || time < view.from) return tell();
    const pass = lane.passes[firstAfter(lane.passes, time)];
    if (!pass || pass.start > time) return tell();
    const chunk = run.chunks > 1 ? `, chunk ${pass.chunk}` : "";
    const parts = pass.parts.map(([kind, length]) => `${KINDS[kind]} ${text(length)}`).join(", ");
    readout.textContent = `Stage ${at}, microbatch ${pass.microbatch}${chunk}, ${pass.name} from ${text(pass.start)} to ${text(pass.end)}: ${parts}`;
  }

  overview.addEventListener("pointerdown", (event) => {
    const time = timeAt(event, overview, 0, whole);
    const half = (view.to - view.from) / 2;
    show(time - half, time + half);
  });

  redraws.push(draw);
  new ResizeObserver(draw).observe(box);
  draw();
})();
