// Head, views, and the address, which leads to what is seen.

function head() {
  document.title = DATA.title;
  $("title").textContent = DATA.command.length ? DATA.command.join(" ") : DATA.title;
  $("about").textContent = `${DATA.title} · ${DATA.host} · ${new Date(DATA.wall_ms).toLocaleString()} · ${DATA.tool}`;
  warnings().forEach((text) => $("warnings").append(element("div", text)));
  const failed = DATA.errors.reduce((sum, row) => sum + row[2], 0);
  const copied = DATA.copies.reduce((sum, row) => sum + row[2], 0);
  const graphs = DATA.graphs ? `, ${many(DATA.graphs, "graph launch")}` : "", failures = DATA.failed_launches ? `, ${count(DATA.failed_launches)} failed` : "";
  const streams = streamCount() ? `, ${many(streamCount(), "stream")} of ${many(DATA.devices.length, "device")}` : "";
  const cards = [
    ["time", time(DATA.time), many(threadCount(), "thread") + streams],
    ["spans", count(DATA.spans + DATA.density.spans), DATA.density.spans ? `${count(DATA.spans)} one by one` : "all in this page"],
    ["API calls", count(DATA.calls[1]), `driver, ${count(DATA.calls[0])} runtime`],
    ["launches", count(DATA.launches), many(DATA.kernels_count, "kernel") + graphs + failures],
    ...DATA.kinds.map(([kind, n, bytes, peak]) => [`${kind} memory`, size(bytes), `in ${count(n)}, at most ${size(peak)}`]),
    ...DATA.gpus.map(([name, busy]) => [name, `${busy} %`, "of its time kernels ran"]),
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

function warnings() {
  const found = [...DATA.troubles], { spans: rest, width, start } = DATA.density;
  if (DATA.cut) found.unshift("The recording was cut off; this is what there is.");
  if (DATA.dropped) found.push(`${count(DATA.dropped)} records were dropped while it was made.`);
  if (rest) {
    const from = rows.reduce((least, row) => Math.min(least, row.bins?.[0].start ?? Infinity), Infinity);
    found.push(`The page has the first ${count(DATA.spans)} spans of the recording one by one. Of the other ${count(rest)}, from ${moment(Math.max(from, 0), 1e6)} on, it has only the busy time of each row per ${time(width)}, hatched in the timeline; search and tables of a marked time do not cover them. Tables and memory of the whole recording cover all spans.`);
  }
  const thinned = DATA.areas.filter((area) => area[3]).map((area) => area[1]);
  if (thinned.length) found.push(`Of these curves only the smallest and largest values are in the page: ${thinned.join(", ")}.`);
  if (DATA.unshown) found.push(`${many(DATA.unshown, "value")} of counters are not shown: they are no numbers, or the counters are too many.`);
  return found;
}

function legend() {
  const item = (name, color) => {
    const made = element("span");
    made.append(element("i", null, { style: `background:${color}` }), name);
    $("legend").append(made);
  };
  const used = new Set(kinds.class);
  DATA.classes.forEach((name, at) => { if (used.has(at)) item(name, COLORS[at]); });
  item("failed", FAILED);
}

const VIEWS = ["timeline", "functions", "kernels", "stacks", "memory", "errors", "keys"];
let shownView = "timeline";
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

// A page in that of two recordings. It has no address of its own, and moves with the other one.
const isFramed = window.name === "cudatrace-recording";
let remembering = null;
function remember() {
  if (isFramed) return;
  clearTimeout(remembering);
  remembering = setTimeout(() => {
    const [from, to] = timeline.view(), parts = [];
    if (shownView !== "timeline") parts.push(`view=${shownView}`);
    if (from > 0 || to < Math.max(DATA.length, 1)) parts.push(`t=${Math.round(from)}-${Math.round(to)}`);
    if ($("search").value) parts.push(`q=${encodeURIComponent($("search").value)}`);
    if (timeline.selected() !== null) parts.push(`call=${timeline.selected()}`);
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
