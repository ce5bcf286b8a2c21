"use strict";
const $ = (id) => document.getElementById(id);
const COLORS = ["#4e79d8", "#e08a2c", "#3f9e6c", "#8c6bc4", "#7a8793", "#5fb3c4", "#a9b4bf", "#76a03a"];
// What is written on a colour.
const INKS = ["#fff", "#1c1206", "#fff", "#fff", "#fff", "#06202a", "#11181f", "#141d06"];
const FAILED = "#d64541";
const [START, LENGTH, THREAD, NAME, CLASS, TEXT, LABEL, PAIR] = [0, 1, 2, 3, 4, 5, 6, 7];
// A stream of a GPU has a number above those of threads.
const STREAMS = 2 ** 30, who = ([pid, tid, comm]) => (tid >= STREAMS ? `${comm} of ${pid}` : `${comm} ${pid}/${tid}`);
// What is written on a call: of a launch the kernel.
const label = (span) => DATA.names[span[LABEL] ?? span[NAME]];

// ---- words

function scaled(n, units) {
  const at = units.findIndex(([, one]) => n >= one);
  if (at < 0) return null;
  const tenths = Math.round((n * 10) / units[at][1]);
  // What rounds up to one of the next unit is written in that one.
  const [unit, one] = at > 0 && tenths * units[at][1] >= 10 * units[at - 1][1] ? units[at - 1] : units[at];
  return (Math.round((n * 10) / one) / 10).toFixed(1) + " " + unit;
}
const time = (ns) => scaled(ns, [["s", 1e9], ["ms", 1e6], ["µs", 1e3]]) ?? Math.round(ns) + " ns";
// A moment of the recording, in one unit throughout, as finely as moments `step` ns apart need to look different.
const [CLOCK, CLOCK_NS] = [["s", 1e9], ["ms", 1e6], ["µs", 1e3]].find(([, ns]) => DATA.length >= ns) ?? ["ns", 1];
const moment = (ns, step) => `${(ns / CLOCK_NS).toFixed(Math.min(Math.max(Math.ceil(Math.log10(CLOCK_NS / step) - 1e-9), 0), 9))} ${CLOCK}`;
const size = (n) => scaled(n, [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 1024]]) ?? n + " B";
const count = (n) => n.toLocaleString("en");
const many = (n, one) => `${count(n)} ${one}${n === 1 ? "" : "s"}`;
function element(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  if (text !== undefined && text !== null) made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

// ---- head

function head() {
  document.title = DATA.title;
  $("title").textContent = DATA.command.length ? DATA.command.join(" ") : DATA.title;
  const when = new Date(DATA.wall_ms).toLocaleString();
  $("about").textContent = `${DATA.title} · ${DATA.host} · ${when} · ${DATA.tool}`;
  const warnings = [...DATA.troubles];
  if (DATA.cut) warnings.unshift("The recording was cut off; this is what there is.");
  if (DATA.dropped) warnings.push(`${count(DATA.dropped)} records were dropped while it was made.`);
  if (DATA.spans.length < DATA.total)
    warnings.push(`The timeline shows the ${count(DATA.spans.length)} longest of ${count(DATA.total)} calls; tables and memory are of all.`);
  warnings.forEach((text) => $("warnings").append(element("div", text)));
  const failed = DATA.errors.reduce((sum, row) => sum + row[2], 0);
  const copied = DATA.copies.reduce((sum, row) => sum + row[2], 0);
  const cards = [
    ["time", time(DATA.time), many(DATA.threads.length, "thread")],
    ["API calls", count(DATA.calls[1]), `driver, ${count(DATA.calls[0])} runtime`],
    ["launches", count(DATA.launches), many(DATA.kernels.length, "kernel") + (DATA.graphs ? `, ${many(DATA.graphs, "graph launch").replace("launchs", "launches")}` : "") + (DATA.failed_launches ? `, ${count(DATA.failed_launches)} failed` : "")],
    ...DATA.kinds.map(([kind, n, bytes, peak]) => [`${kind} memory`, size(bytes), `in ${count(n)}, at most ${size(peak)}`]),
    ...DATA.gpus.map(([name, percent]) => [name, `${percent} %`, "of its time kernels ran"]),
    ["copied", size(copied), DATA.copies.map((row) => row[0]).join(" ")],
    ["errors", count(failed), DATA.after_shutdown ? `and ${many(DATA.after_shutdown, "call")} at exit, after the driver had shut down` : ""],
  ];
  for (const [name, value, more] of cards) {
    const [box, dd] = [element("div"), element("dd", value)];
    if (more) dd.append(" ", element("small", more));
    if (name === "errors" && failed) dd.className = "failed";
    box.append(element("dt", name), dd);
    $("cards").append(box);
  }
}

// ---- views

const VIEWS = ["timeline", "functions", "kernels", "memory", "errors", "keys"];
function show(view) {
  for (const name of VIEWS) {
    $(name).hidden = name !== view;
    $("tab-" + name).setAttribute("aria-selected", name === view);
    $("tab-" + name).tabIndex = name === view ? 0 : -1;
  }
  shownView = view;
  if (view === "timeline") timeline.resize();
  remember();
}
let shownView = "timeline";

// ---- the address leads to what is seen

let remembering = null;
function remember() {
  clearTimeout(remembering);
  remembering = setTimeout(() => {
    const [from, to] = timeline.view(), parts = [];
    if (shownView !== "timeline") parts.push(`view=${shownView}`);
    if (from > 0 || to < Math.max(DATA.length, 1)) parts.push(`t=${Math.round(from)}-${Math.round(to)}`);
    if ($("search").value) parts.push(`q=${encodeURIComponent($("search").value)}`);
    if (timeline.selected()) parts.push(`call=${DATA.spans.indexOf(timeline.selected())}`);
    const hash = parts.length ? "#" + parts.join("&") : "";
    if (hash !== location.hash) history.replaceState(null, "", location.pathname + location.search + hash);
  }, 250);
}
function recall() {
  const parts = new Map(location.hash.slice(1).split("&").map((part) => part.split(/=(.*)/s)));
  const [from, to] = (parts.get("t") ?? "").split("-").map(Number);
  if (parts.has("q")) {
    $("search").value = decodeURIComponent(parts.get("q"));
    timeline.search($("search").value);
  }
  if (to > from) timeline.look(from, to);
  show(VIEWS.includes(parts.get("view")) ? parts.get("view") : "timeline");
  if (parts.has("call")) timeline.choose(Number(parts.get("call")));
}

// A table whose columns sort; `rows` are arrays of cells, a cell text, a number with its words, or an element.
function table(place, heads, rows, empty) {
  if (!rows.length) return place.append(element("p", empty));
  const made = element("table"), body = element("tbody"), top = element("tr");
  // Words and pictures begin where their column does, numbers end there.
  const left = rows[0].map((cell) => cell instanceof Node || typeof cell === "string");
  const value = (cell) => (cell && typeof cell === "object" && "sort" in cell ? cell.sort : cell);
  const fill = () => {
    body.replaceChildren(...rows.map((row) => {
      const tr = element("tr");
      row.forEach((cell, at) => {
        const td = element("td");
        td.classList.toggle("left", left[at]);
        if (cell instanceof Node) td.append(cell);
        else if (cell && typeof cell === "object") td.append(cell.text, ...(cell.more ? [cell.more()] : []));
        else td.textContent = typeof cell === "number" ? count(cell) : cell;
        tr.append(td);
      });
      return tr;
    }));
  };
  heads.forEach((text, at) => {
    const th = element("th"), button = element("button", text);
    button.onclick = () => {
      const down = th.getAttribute("aria-sort") !== "descending";
      top.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
      th.setAttribute("aria-sort", down ? "descending" : "ascending");
      const sign = down ? -1 : 1;
      rows.sort((a, b) => (value(a[at]) < value(b[at]) ? -sign : value(a[at]) > value(b[at]) ? sign : 0));
      fill();
    };
    th.classList.toggle("left", left[at]);
    th.append(button);
    top.append(th);
  });
  const thead = element("thead");
  thead.append(top);
  made.append(thead, body);
  fill();
  place.append(made);
}

// Counts by power of two of the nanoseconds. All of a table begin and end at the same powers, so that they compare.
function histogram(buckets, first, end) {
  const width = 4, height = 22, most = Math.max(...buckets, 1), shown = buckets.slice(first);
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("width", (end - first) * width);
  svg.setAttribute("height", height);
  svg.setAttribute("role", "img");
  const least = Math.max(buckets.findIndex((n) => n > 0), 0);
  svg.setAttribute("aria-label", `durations from ${time(2 ** least)} to ${time(2 ** buckets.length)}`);
  shown.forEach((n, at) => {
    const bar = document.createElementNS(svg.namespaceURI, "rect");
    const tall = n ? Math.max(1, Math.round((n / most) * height)) : 0;
    for (const [key, value] of [["x", at * width], ["y", height - tall], ["width", width - 1], ["height", tall]]) bar.setAttribute(key, value);
    const title = document.createElementNS(svg.namespaceURI, "title");
    title.textContent = `${time(2 ** (first + at))} to ${time(2 ** (first + at + 1))}: ${count(n)}`;
    bar.append(title);
    svg.append(bar);
  });
  return svg;
}

// A name that leads to its calls in the timeline.
function link(name, text = name, sort = name) {
  const made = element("button", name, { class: "link", title: "Show in the timeline" });
  made.onclick = () => timeline.find(text);
  made.sort = sort;
  return made;
}

const percent = (part, all) => `${((100 * part) / all).toFixed(1)} %`;
function stats(place, what, rows) {
  const all = rows.reduce((sum, row) => sum + row[3], 0) || 1;
  const cell = (ns) => ({ text: time(ns), sort: ns });
  const first = Math.min(...rows.map((row) => Math.max(row[8].findIndex((n) => n > 0), 0)));
  const end = Math.max(...rows.map((row) => row[8].length));
  const failures = (name, n) => (n ? link(count(n), `failed "${name}"`, n) : n);
  const cells = rows.map(([name, n, total, self, median, p99, longest, errors, buckets]) => [
    link(name, `"${name}"`), n, cell(total),
    { text: time(self), sort: self, more: () => element("span", null, { class: "share", style: `width:${Math.max(1, (60 * self) / all)}px` }) },
    { text: percent(self, all), sort: self },
    cell(total / n), cell(median), cell(p99), cell(longest), failures(name, errors), histogram(buckets, first, end),
  ]);
  const range = `durations (${time(2 ** first)} to ${time(2 ** end)})`;
  table($(place), [what, "calls", "total", "self", "self %", "mean", "median", "p99", "longest", "errors", range], cells, "There are none.");
}

// Bytes of a kind of memory over time.
function curve(place, kind, points, peak) {
  const [width, height] = [1000, 240], most = Math.max(...points.map((p) => p[1]), 1);
  const x = (t) => (t / Math.max(DATA.length, 1)) * width, y = (n) => height - (n / most) * (height - 20);
  let path = `M0,${height}L0,${height}`, last = height;
  for (const [t, n] of points) { path += `L${x(t).toFixed(2)},${last.toFixed(2)}L${x(t).toFixed(2)},${y(n).toFixed(2)}`; last = y(n); }
  path += `L${width},${last.toFixed(2)}L${width},${height}Z`;
  const holder = element("div");
  holder.innerHTML = `<svg class="curve" viewBox="0 0 ${width} ${height}" preserveAspectRatio="none" role="img"><path d="${path}"/></svg>`;
  holder.firstChild.setAttribute("aria-label", `${kind} memory over time, at most ${size(most)}`);
  const axis = element("div", null, { class: "axis", "aria-hidden": "true" });
  for (let at = 0; at <= 8; at++) axis.append(element("span", time((DATA.length * at) / 8)));
  place.append(element("h2", `${kind} memory over time, of processes that run (${size(peak)} at the top)`), holder, axis);
}

function memory() {
  const place = $("memory"), bytes = (n) => ({ text: size(n), sort: n });
  table(place, ["kind of memory", "allocations", "bytes", "most at a time", "never freed"],
    DATA.kinds.map(([kind, n, all, peak, left]) => [kind, n, bytes(all), bytes(peak), bytes(left)]), "Nothing was allocated.");
  place.append(element("p", `${many(DATA.frees, "free")}; ${many(DATA.leaked, "block")} never freed.`));
  for (const [kind, , , peak] of DATA.kinds) if (DATA.memory[kind]?.length) curve(place, kind, DATA.memory[kind], peak);
  place.append(element("h2", "Copies"));
  table(place, ["direction", "copies", "bytes", "time in the calls"],
    DATA.copies.map(([way, n, bytes, ns]) => [way, n, { text: size(bytes), sort: bytes }, { text: time(ns), sort: ns }]), "There are none.");
}

function errors() {
  table($("errors"), ["function", "result", "times"], DATA.errors.map(([name, result, times]) => [link(name, `failed "${name}"`), link(result, `failed "${result}"`), link(count(times), `failed "${name}" "${result}"`, times)]), "No call failed.");
}

// ---- timeline

const timeline = (() => {
  const canvas = $("canvas"), overview = $("overview"), ROW = 18, GAP = 10, HEAD = 18, AXIS = 22, GROUP = 20, DETAILS = 108;
  const lanes = DATA.threads.map((thread, at) => ({ thread, spans: [], depth: 1, y: 0, at }));
  // Depth by nesting: spans are sorted by thread and start, the longer first.
  const open = [];
  DATA.spans.forEach((span) => {
    const lane = lanes[span[THREAD]];
    if (!lane.open) lane.open = [];
    while (lane.open.length && lane.open[lane.open.length - 1] <= span[START]) lane.open.pop();
    span.depth = lane.open.length;
    lane.open.push(span[START] + Math.max(span[LENGTH], 1));
    lane.depth = Math.max(lane.depth, lane.open.length);
    lane.spans.push(span);
  });
  // A process's main thread has the smallest number.
  for (const lane of lanes) lane.words = `${lane.thread[3]} ${who(lane.thread)}`;
  const used = lanes.filter((lane) => lane.spans.length).sort((a, b) => a.thread[0] - b.thread[0] || a.thread[1] - b.thread[1]);
  const LEAST = 50;
  let [from, to] = [0, Math.max(DATA.length, LEAST)], selected = null, query = null, marked = null, width = 100, tall = 100;
  const all = to, box = $("lanes"), IDLE = used.length ? "Click a call, or press n. All keys: ?" : "There are no calls.";
  // Threads by process. Names of threads are cut by the kernel, that of the program is not.
  const groups = [...Map.groupBy(used, (lane) => lane.thread[0])].map(([pid, lanes]) => ({ pid, lanes, program: lanes[0].thread[3], open: true, y: 0 }));
  let height = AXIS;
  function layout() {
    height = AXIS;
    for (const group of groups) {
      group.y = height;
      height += GROUP;
      for (const lane of group.lanes) {
        lane.hidden = !group.open;
        lane.y = height;
        if (group.open) height += HEAD + lane.depth * ROW + GAP;
      }
    }
  }
  layout();

  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const matches = (span) => query && query.every((test) => test(span));
  // `failed`, `>1ms`, `"exactly this name"`, `/pattern/`, `^cuMem`, or a part of a name, of the details or of a thread: all words must fit.
  function parse(text) {
    const words = text.match(/"[^"]*"|\/(?:[^/\\]|\\.)+\/|\S+/g) ?? [];
    return words.map((word) => {
      const long = word.match(/^([<>])=?([\d.]+)(ns|us|µs|ms|s)$/);
      if (long) {
        const ns = Number(long[2]) * { ns: 1, us: 1e3, µs: 1e3, ms: 1e6, s: 1e9 }[long[3]];
        return long[1] === ">" ? (span) => span[LENGTH] >= ns : (span) => span[LENGTH] <= ns;
      }
      if (word.toLowerCase() === "failed") return (span) => span[CLASS] >= 8;
      const fields = (span) => [DATA.names[span[NAME]], label(span), span[TEXT], lanes[span[THREAD]].words];
      if (/^".*"$/s.test(word)) {
        const exact = word.slice(1, -1);
        return (span) => DATA.names[span[NAME]] === exact || label(span) === exact || span[TEXT].split(" ").includes(exact);
      }
      const slashes = word.match(/^\/(.+)\/$/s);
      if (slashes || /^\^|\$$|\.\*/.test(word)) {
        try {
          const pattern = new RegExp(slashes ? slashes[1] : word, "i");
          return (span) => fields(span).some((text) => pattern.test(text));
        } catch { return () => false; }
      }
      const part = word.toLowerCase();
      return (span) => fields(span).some((text) => text.toLowerCase().includes(part));
    });
  }
  const color = (span) => (span[CLASS] >= 8 ? FAILED : COLORS[span[CLASS] % 8]);
  const ink = (span) => (span[CLASS] >= 8 ? "#fff" : INKS[span[CLASS] % 8]);
  const x = (t) => ((t - from) / (to - from)) * width;

  function resize() {
    const ratio = window.devicePixelRatio || 1;
    width = box.clientWidth || 800;
    // The canvas is what is seen of the rows: browsers bear none that is as tall as thousands of them.
    // The details stay in sight below the rows.
    const top = box.getBoundingClientRect().top + scrollY;
    tall = Math.min(height, Math.max(Math.floor(innerHeight - top - DETAILS), 120));
    box.style.maxHeight = tall + 2 + "px";
    $("rows").style.height = height + "px";
    for (const [target, high] of [[canvas, tall], [overview, 36]]) {
      target.width = width * ratio;
      target.height = high * ratio;
      target.style.height = high + "px";
      target.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
    }
    draw();
  }

  // First span of a lane that may reach into the view: starts are sorted, and a parent comes before what is in it.
  function firstIn(lane) {
    let [low, high] = [0, lane.spans.length];
    while (low < high) { const mid = (low + high) >> 1; if (lane.spans[mid][START] < from) low = mid + 1; else high = mid; }
    // Whatever began before and is still open nests around the first: look back as far as the outermost of it.
    let back = low;
    while (back > 0 && lane.spans[back - 1].depth > 0) back--;
    return Math.max(back - 1, 0);
  }

  function axis(g) {
    const wanted = (to - from) / Math.max(width / 120, 1);
    const step = [1, 2, 5, 10].map((n) => n * 10 ** Math.floor(Math.log10(wanted))).find((n) => n >= wanted);
    g.fillStyle = style("--soft");
    g.strokeStyle = style("--line");
    for (let t = Math.ceil(from / step) * step; t <= to; t += step) {
      g.beginPath(); g.moveTo(x(t), AXIS - 6); g.lineTo(x(t), tall); g.stroke();
      const label = moment(t, step), left = x(t) + 3;
      if (left + g.measureText(label).width <= width) g.fillText(label, left, 12);
    }
  }

  function draw() {
    const g = canvas.getContext("2d");
    g.fillStyle = style("--back");
    g.fillRect(0, 0, width, tall);
    g.font = "12px system-ui, sans-serif";
    axis(g);
    g.save();
    g.beginPath(); g.rect(0, AXIS, width, tall - AXIS); g.clip();
    g.translate(0, -box.scrollTop);
    const [upper, lower] = [box.scrollTop + AXIS, box.scrollTop + tall];
    for (const group of groups) if (group.y < lower && group.y + GROUP > upper) drawGroup(g, group);
    for (const lane of used) if (!lane.hidden && lane.y < lower && lane.y + HEAD + lane.depth * ROW > upper) drawLane(g, lane);
    drawArrows(g);
    g.restore();
    if (marked) {
      g.fillStyle = style("--mark");
      g.globalAlpha = 0.35;
      g.fillRect(x(marked[0]), 0, Math.max(x(marked[1]) - x(marked[0]), 1), tall);
      g.globalAlpha = 1;
    }
    drawOverview();
    remember();
  }

  function drawGroup(g, group) {
    g.fillStyle = style("--panel");
    g.fillRect(0, group.y, width, GROUP - 2);
    g.fillStyle = style("--front");
    g.fillText(`${group.open ? "▾" : "▸"} ${group.program || "process"} ${group.pid}  (${many(group.lanes.length, "thread")})`, 4, group.y + 13);
  }

  function drawLane(g, lane) {
    g.fillStyle = style("--soft");
    g.fillText(who(lane.thread), 4, lane.y + 12);
    const last = [];
    for (let at = firstIn(lane); at < lane.spans.length; at++) {
      const span = lane.spans[at];
      if (span[START] > to) break;
      const end = span[START] + span[LENGTH];
      if (end < from) continue;
      const left = Math.max(x(span[START]), -1), wide = Math.max(Math.min(x(end), width + 1) - left, 1);
      // What lies within a pixel that is painted already would not be seen.
      const strong = span === selected || matches(span);
      if (!strong && wide <= 1 && last[span.depth] !== undefined && left - last[span.depth] < 1 && span[CLASS] < 8) continue;
      last[span.depth] = left;
      const top = lane.y + HEAD + span.depth * ROW;
      g.globalAlpha = query && !strong ? 0.25 : 1;
      g.fillStyle = color(span);
      // A line between neighbours of one colour, where there is room for it.
      g.fillRect(left, top, wide > 3 ? wide - 1 : wide, ROW - 2);
      if (wide > 30) {
        g.save(); g.beginPath(); g.rect(left, top, wide - 2, ROW); g.clip();
        g.fillStyle = ink(span);
        g.fillText(label(span), Math.max(left, 0) + 3, top + 12);
        g.restore();
      }
      g.globalAlpha = 1;
      if (span === selected) { g.strokeStyle = style("--front"); g.lineWidth = 2; g.strokeRect(left, top, wide, ROW - 2); g.lineWidth = 1; }
    }
  }

  let busy = null;
  function drawOverview() {
    const g = overview.getContext("2d"), tall = 36;
    if (!busy || busy.length !== width) {
      busy = new Float64Array(width);
      const slice = all / width;
      for (const span of DATA.spans) {
        if (span.depth) continue;
        const [a, b] = [span[START] / slice, (span[START] + span[LENGTH]) / slice];
        for (let at = Math.floor(a); at <= Math.min(Math.floor(b), width - 1); at++) busy[at] += Math.max(Math.min(b, at + 1) - Math.max(a, at), 0.02);
      }
    }
    const most = Math.max(...busy, 1e-9);
    g.fillStyle = style("--panel");
    g.fillRect(0, 0, width, tall);
    g.fillStyle = style("--accent");
    busy.forEach((n, at) => { const h = (n / most) * (tall - 4); g.fillRect(at, tall - h, 1, h); });
    g.fillStyle = "rgba(128,128,128,.35)";
    const [a, b] = [(from / all) * width, (to / all) * width];
    g.fillRect(0, 0, a, tall);
    g.fillRect(b, 0, width - b, tall);
  }

  function view(a, b) {
    const length = Math.min(Math.max(b - a, LEAST), all);
    const middle = (a + b) / 2;
    from = Math.min(Math.max(middle - length / 2, 0), all - length);
    to = from + length;
    draw();
  }
  // Around the selected call where it is seen.
  function middle() {
    const at = selected ? selected[START] + selected[LENGTH] / 2 : -1;
    return at >= from && at <= to ? at : (from + to) / 2;
  }
  const zoom = (factor, at = middle()) => view(at - (at - from) * factor, at + (to - at) * factor);
  const move = (part) => view(from + (to - from) * part, to + (to - from) * part);

  function select(span, follow) {
    selected = span;
    const details = $("details");
    if (!span) { marked = null; details.replaceChildren(element("em", IDLE)); return draw(); }
    const name = element("b", DATA.names[span[NAME]]);
    marked = null;
    if (span[CLASS] >= 8) name.className = "failed";
    const where = ` took ${time(span[LENGTH])} at ${moment(span[START], 1e3)} in ${who(DATA.threads[span[THREAD]])} (${DATA.classes[span[CLASS] % 8]})`;
    details.replaceChildren(name, label(span) === DATA.names[span[NAME]] ? "" : ` ${label(span)}`, where, element("br"), span[TEXT]);
    const [partner] = partners(span);
    if (partner) {
      const text = isWork(span) ? `launched ${time(span[START] - partner[START])} before` : `ran ${time(partner[START] - span[START])} later, for ${time(partner[LENGTH])}`;
      const button = element("button", text, { title: "Show it (g)" });
      button.onclick = () => select(partner, true);
      details.append(" ", button);
    }
    const end = span[START] + span[LENGTH];
    if (follow) reveal(span);
    if (follow && (span[START] < from || end > to)) {
      const length = Math.max(to - from, span[LENGTH] * 1.5), middle = span[START] + span[LENGTH] / 2;
      view(middle - length / 2, middle + length / 2);
    } else draw();
  }

  // Calls and the work of a GPU that they launched: each leads to the other.
  const pairs = Map.groupBy(DATA.spans.filter((span) => span[PAIR]), (span) => span[PAIR]);
  const isWork = (span) => DATA.threads[span[THREAD]][1] >= STREAMS;
  const partners = (span) => (pairs.get(span[PAIR]) ?? []).filter((other) => isWork(other) !== isWork(span));
  function drawArrows(g) {
    if (!selected) return;
    g.strokeStyle = g.fillStyle = style("--front");
    for (const other of partners(selected)) {
      const [call, work] = isWork(selected) ? [other, selected] : [selected, other];
      const place = (span) => lanes[span[THREAD]].y + HEAD + (span.depth + 0.5) * ROW - 1;
      if (lanes[call[THREAD]].hidden || lanes[work[THREAD]].hidden) continue;
      const [left, top, right, bottom] = [x(call[START]), place(call), x(work[START]), place(work)];
      g.beginPath(); g.moveTo(left, top);
      g.bezierCurveTo((left + right) / 2, top, (left + right) / 2, bottom, right, bottom);
      g.stroke();
      g.beginPath(); g.moveTo(right, bottom); g.lineTo(right - 7, bottom - 4); g.lineTo(right - 7, bottom + 4); g.fill();
    }
  }

  // Scrolls to the row of a call where threads are many.
  function reveal(span) {
    const lane = lanes[span[THREAD]];
    if (lane.hidden) {
      groups.find((group) => group.lanes.includes(lane)).open = true;
      layout();
      resize();
    }
    const top = lane.y + HEAD + span.depth * ROW;
    if (top < box.scrollTop + AXIS || top + ROW > box.scrollTop + tall) box.scrollTop = Math.max(lane.y - AXIS - GROUP, 0);
  }

  const cross = () => { const [partner] = selected ? partners(selected) : []; if (partner) select(partner, true); };

  // The call around the selected one, or the first in it.
  function nest(direction) {
    if (!selected) return step(1);
    const { spans } = lanes[selected[THREAD]], at = spans.indexOf(selected);
    const end = selected[START] + selected[LENGTH];
    if (direction > 0) {
      const inner = spans[at + 1];
      if (inner && inner.depth === selected.depth + 1 && inner[START] < end) select(inner, true);
    } else {
      const around = spans.slice(0, at).findLast((span) => span.depth < selected.depth);
      if (around && selected.depth) select(around, true);
    }
  }

  // From a table: all calls with this in their name or text, and the first of them.
  function find(text) {
    show("timeline");
    $("search").value = text;
    search(text);
    selected = null;
    view(0, all);
    step(1);
    canvas.focus();
  }

  function step(direction) {
    const pool = query ? DATA.spans.filter(matches).sort((a, b) => a[START] - b[START]) : selected ? lanes[selected[THREAD]].spans : used.length ? (used.find((lane) => !lane.hidden && lane.y >= box.scrollTop) ?? used[0]).spans : [];
    if (!pool.length) return;
    let at = selected ? pool.indexOf(selected) : -1;
    if (at < 0) at = direction > 0 ? pool.findIndex((span) => span[START] >= from) - 1 : pool.length;
    select(pool[(at + direction + pool.length) % pool.length], true);
  }

  function search(text) {
    query = text.trim() ? parse(text) : null;
    $("found").textContent = query ? `${count(DATA.spans.filter(matches).length)} found` : "";
    draw();
  }

  function hit(event) {
    const at = canvas.getBoundingClientRect(), t = from + ((event.clientX - at.left) / width) * (to - from), y = event.clientY - at.top + box.scrollTop;
    const slack = ((to - from) / width) * 2;
    const lane = used.find((lane) => !lane.hidden && y >= lane.y && y < lane.y + HEAD + lane.depth * ROW + GAP);
    if (!lane) return null;
    const depth = Math.floor((y - lane.y - HEAD) / ROW);
    let best = null;
    for (let at = firstIn(lane); at < lane.spans.length && lane.spans[at][START] <= t + slack; at++) {
      const span = lane.spans[at];
      if (span.depth === depth && span[START] - slack <= t && span[START] + span[LENGTH] + slack >= t) best = span;
    }
    return best;
  }

  const timeAt = (event) => from + ((event.clientX - canvas.getBoundingClientRect().left) / width) * (to - from);
  function groupAt(event) {
    const y = event.clientY - canvas.getBoundingClientRect().top;
    return y < AXIS ? null : groups.find((group) => y + box.scrollTop >= group.y && y + box.scrollTop < group.y + GROUP);
  }

  // What a part of the time is made of: calls by name, as far as they lie in it.
  function markArea(a, b) {
    marked = [Math.max(a, 0), Math.min(b, all)];
    selected = null;
    const rows = new Map();
    for (const lane of used) {
      const open = [];
      for (const span of lane.spans) {
        if (span[START] > marked[1]) break;
        const ns = Math.min(span[START] + span[LENGTH], marked[1]) - Math.max(span[START], marked[0]);
        if (ns < 0) continue;
        const row = rows.get(label(span)) ?? [0, 0, 0, 0];
        rows.set(label(span), row);
        row[0]++; row[1] += ns; row[2] += ns; row[3] += span[CLASS] >= 8 ? 1 : 0;
        open.length = Math.min(open.length, span.depth);
        if (open[span.depth - 1]) open[span.depth - 1][2] -= ns;
        open[span.depth] = row;
      }
    }
    const sum = [...rows.values()].reduce((sum, row) => sum + row[2], 0) || 1, place = $("details");
    const zoomIn = element("button", "Zoom to it ( f )");
    zoomIn.onclick = () => view(...marked);
    const holder = element("div", null, { class: "area" });
    place.replaceChildren(element("b", time(marked[1] - marked[0])), ` from ${moment(marked[0], 1e3)} to ${moment(marked[1], 1e3)} `, zoomIn, holder);
    const cell = (ns) => ({ text: time(ns), sort: ns });
    const found = [...rows].sort((one, two) => two[1][2] - one[1][2]);
    table(holder, ["call or kernel", "calls", "total", "self", "self %", "failed"],
      found.map(([name, [n, total, self, failed]]) => [link(name, `"${name}"`), n, cell(total), cell(self), { text: percent(self, sum), sort: self }, failed]), "No call lies in it.");
    draw();
  }

  const tip = $("tip");
  function hover(event) {
    const span = hit(event);
    tip.hidden = !span;
    canvas.style.cursor = span || groupAt(event) ? "pointer" : "";
    if (!span) return;
    const text = span[TEXT].length > 160 ? span[TEXT].slice(0, 160) + "…" : span[TEXT];
    const name = element("b", label(span));
    if (span[CLASS] >= 8) name.className = "failed";
    tip.replaceChildren(name, ` ${time(span[LENGTH])}`, element("br"), label(span) === DATA.names[span[NAME]] ? "" : DATA.names[span[NAME]] + " ", text);
    tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8) + "px";
    tip.style.top = Math.min(event.clientY + 16, innerHeight - tip.offsetHeight - 8) + "px";
  }

  let grip = null;
  canvas.onpointerleave = () => (tip.hidden = true);
  canvas.onpointerdown = (event) => { tip.hidden = true; grip = { x: event.clientX, at: timeAt(event), from, to, moved: false, mark: event.shiftKey }; canvas.setPointerCapture(event.pointerId); };
  canvas.onpointermove = (event) => {
    if (!grip) return hover(event);
    const by = event.clientX - grip.x;
    grip.moved ||= Math.abs(by) > 3;
    if (!grip.moved) return;
    if (grip.mark) {
      marked = [grip.at, timeAt(event)].sort((a, b) => a - b);
      return draw();
    }
    const part = (by / width) * (grip.to - grip.from);
    view(grip.from - part, grip.to - part);
  };
  canvas.onpointerup = (event) => {
    const group = grip && !grip.moved ? groupAt(event) : null;
    if (grip && grip.moved && grip.mark) markArea(...[grip.at, timeAt(event)].sort((a, b) => a - b));
    else if (group) {
      group.open = !group.open;
      layout();
      resize();
    } else if (grip && !grip.moved) select(hit(event), false);
    grip = null;
  };
  canvas.ondblclick = (event) => { const span = hit(event); if (span) { select(span, false); fill(); } };
  canvas.addEventListener("wheel", (event) => {
    if (event.altKey) return;
    event.preventDefault();
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) return move(event.deltaX / width);
    const left = canvas.getBoundingClientRect().left;
    zoom(event.deltaY > 0 ? 1.25 : 0.8, from + ((event.clientX - left) / width) * (to - from));
  }, { passive: false });
  box.onscroll = draw;
  overview.onpointerdown = (event) => { overview.setPointerCapture(event.pointerId); overview.onpointermove(event); };
  overview.onpointermove = (event) => {
    if (!event.buttons) return;
    const at = ((event.clientX - overview.getBoundingClientRect().left) / width) * all, half = (to - from) / 2;
    view(at - half, at + half);
  };
  $("zoom-in").onclick = () => zoom(0.5);
  $("zoom-out").onclick = () => zoom(2);
  $("zoom-all").onclick = () => view(0, all);
  $("search").oninput = (event) => search(event.target.value);
  DATA.classes.forEach((name, at) => {
    const item = element("span");
    item.append(element("i", null, { style: `background:${COLORS[at]}` }), name);
    $("legend").append(item);
  });
  const bad = element("span");
  bad.append(element("i", null, { style: `background:${FAILED}` }), "failed");
  $("legend").append(bad);

  $("details").replaceChildren(element("em", IDLE));
  const fill = () => marked ? view(...marked) : selected && view(selected[START] - selected[LENGTH] * 0.1, selected[START] + selected[LENGTH] * 1.1);
  const scroll = (pages) => box.scrollBy(0, pages * (tall - AXIS - ROW));
  return { resize, zoom, move, scroll, step, nest, cross, find, select, choose: (at) => DATA.spans[at] && select(DATA.spans[at], true), search, fill, markArea, look: view, all: () => view(0, all), view: () => [from, to], selected: () => selected };
})();

// ---- keys

const KEYS = {
  ArrowLeft: () => timeline.move(-0.2), a: () => timeline.move(-0.2),
  ArrowRight: () => timeline.move(0.2), d: () => timeline.move(0.2),
  "+": () => timeline.zoom(0.7), "=": () => timeline.zoom(0.7), w: () => timeline.zoom(0.7),
  "-": () => timeline.zoom(1 / 0.7), s: () => timeline.zoom(1 / 0.7),
  ArrowUp: () => timeline.nest(-1), ArrowDown: () => timeline.nest(1),
  PageUp: () => timeline.scroll(-1), PageDown: () => timeline.scroll(1),
  0: timeline.all, n: () => timeline.step(1), p: () => timeline.step(-1), f: timeline.fill, g: timeline.cross,
};
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target === $("search");
  if (event.key === "Escape") {
    $("search").value = "";
    timeline.search("");
    timeline.select(null);
    $("canvas").focus();
  } else if (typing) {
    if (event.key === "Enter") timeline.step(event.shiftKey ? -1 : 1);
    return;
  } else if (event.key === "/") {
    show("timeline");
    $("search").focus();
  } else if (event.key === "?") {
    show("keys");
    $("tab-keys").focus();
  } else if (event.key >= "1" && event.key <= String(VIEWS.length)) {
    show(VIEWS[event.key - 1]);
    $("tab-" + VIEWS[event.key - 1]).focus();
  } else if (event.target.getAttribute?.("role") === "tab" && event.key.startsWith("Arrow")) {
    const at = VIEWS.indexOf(event.target.id.slice(4)) + (event.key === "ArrowRight" || event.key === "ArrowDown" ? 1 : -1);
    const view = VIEWS[(at + VIEWS.length) % VIEWS.length];
    show(view);
    $("tab-" + view).focus();
  } else if (!$("timeline").hidden && KEYS[event.key]) {
    KEYS[event.key]();
  } else return;
  event.preventDefault();
});

// ---- begin

head();
stats("functions", "function", DATA.functions);
if (DATA.gpu_kernels.length) stats("kernels", "kernel (time on the GPU)", DATA.gpu_kernels);
stats("kernels", "kernel (host time of its launches)", DATA.kernels);
if (DATA.ioctls.length) { $("functions").append(element("h2", "ioctls of the driver")); stats("functions", "ioctl", DATA.ioctls); }
if (DATA.driver_functions.length) {
  $("functions").append(element("h2", "functions of the kernel driver"));
  stats("functions", "function", DATA.driver_functions);
}
memory();
errors();
for (const view of VIEWS) $("tab-" + view).onclick = () => show(view);
window.addEventListener("resize", timeline.resize);
window.addEventListener("hashchange", recall);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", timeline.resize);
recall();
