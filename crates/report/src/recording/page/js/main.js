// Keys, and the beginning: the columns are read, then the page opens.

const KEYS = {
  ArrowLeft: () => timeline.move(-0.2), a: () => timeline.move(-0.2),
  ArrowRight: () => timeline.move(0.2), d: () => timeline.move(0.2),
  "+": () => timeline.zoom(0.7), "=": () => timeline.zoom(0.7), w: () => timeline.zoom(0.7),
  "-": () => timeline.zoom(1 / 0.7), s: () => timeline.zoom(1 / 0.7),
  ArrowUp: () => timeline.nest(-1), ArrowDown: () => timeline.nest(1),
  PageUp: () => timeline.scroll(-1), PageDown: () => timeline.scroll(1),
  0: timeline.all, n: () => timeline.step(1), p: () => timeline.step(-1), f: timeline.fill, g: timeline.cross,
};
function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target === $("search");
  // Other fields have their own keys.
  if (!typing && event.target.matches?.("input")) return;
  if (event.key === "Escape") {
    timeline.clear();
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
}

function fillViews() {
  stats("functions", "function", DATA.functions, DATA.functions_count);
  if (DATA.gpu_kernels.length) stats("kernels", "kernel (time on the GPU)", DATA.gpu_kernels, DATA.gpu_kernels_count);
  stats("kernels", "kernel (host time of its launches)", DATA.kernels, DATA.kernels_count);
  const more = [["ioctls of the driver", "ioctl", "ioctls"], ["functions of the kernel driver", "function", "driver_functions"]];
  for (const [title, what, key] of more) {
    if (!DATA[key].length) continue;
    $("functions").append(element("h2", title));
    stats("functions", what, DATA[key], DATA[key + "_count"]);
  }
  flameGraph();
  memory();
  errors();
}

async function openPage() {
  if (!window.DecompressionStream) throw new Error("This browser cannot read the page: it needs DecompressionStream (Chromium 80, Firefox 113, Safari 16.4).");
  readTheme();
  await loadSpans();
  await loadRows();
  await loadStacks();
  summarize();
  head();
  legend();
  fillViews();
  $("details").replaceChildren(element("em", spans.count ? "Click a span, or press n. All keys: ?" : "There are no calls."));
  for (const view of VIEWS) $("tab-" + view).onclick = () => show(view);
  document.addEventListener("keydown", onKey);
  window.addEventListener("resize", timeline.resize);
  window.addEventListener("hashchange", recall);
  document.body.classList.toggle("framed", isFramed);
  if (isFramed) window.addEventListener("message", ({ data }) => { if (Array.isArray(data)) timeline.look(...data, true); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readTheme(); timeline.resize(); });
  $("loading").remove();
  recall();
  timeline.paint();
}
const failed = (error) => {
  $("warnings").append(element("div", `The page cannot be read: ${error.message}`));
  throw error;
};
// Scripts that use the page wait for these: it is open, and launches are read.
const opened = openPage().catch(failed), linked = opened.then(loadLaunches).then(timeline.reselect).catch(failed);
