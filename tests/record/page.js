// Uses the page by keys and pointer, and logs the results.
const log = [];
const say = (what, how) => log.push(`${what}: ${how}`);
const press = (key, target) => (target || document.body).dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
const details = () => document.getElementById("details").textContent;
const pause = () => new Promise((next) => setTimeout(next, 20));
// The number of spans that pass a test of their position.
const number = (test) => { let sum = 0; for (let i = 0; i < spans.count; i++) sum += test(i); return sum; };
window.onerror = (message) => say("error", message);
async function use() {
  say("spans", spans.count);
  say("check", JSON.stringify(cudatraceCheck()));
  const lanes = document.getElementById("lanes").getBoundingClientRect();
  say("tall", lanes.height > innerHeight / 2 && document.body.scrollHeight <= innerHeight);
  press("n");
  press("n");
  say("stepped", details().includes(" took "));
  press("0");
  const [a, b] = timeline.view();
  press("+");
  press("+");
  const [c, d] = timeline.view();
  say("zoomed", d - c < b - a);
  press("ArrowRight");
  say("moved", timeline.view()[0] > c);
  press("0");
  say("all", timeline.view()[0] === 0 && timeline.view()[1] === b);
  press("/");
  const search = document.getElementById("search");
  say("focused", document.activeElement === search);
  search.value = "memcpy";
  search.dispatchEvent(new Event("input"));
  while (!query?.done) await pause();
  say("searched", document.getElementById("found").textContent !== "0 found");
  press("Enter", search);
  say("followed", details().toLowerCase().includes("memcpy"));
  press("Escape", search);
  say("cleared", details().startsWith("Click"));
  const views = [];
  for (const key of "234567") {
    press(key);
    const shown = [...document.querySelectorAll("section")].filter((section) => !section.hidden && section.textContent.trim());
    views.push(shown.map((section) => section.id).join());
  }
  say("views", views.join(" "));
  // Keys of views are letters of a name in other fields.
  show("errors");
  const field = document.createElement("input");
  document.body.append(field);
  press("2", field);
  say("typed", !document.getElementById("errors").hidden);
  field.remove();
  press("2");
  const calls = () => [...document.querySelectorAll("#functions tbody tr")].map((row) => Number(row.cells[1].textContent.replaceAll(",", "")));
  document.querySelectorAll("#functions th button")[1].click();
  say("sorted", calls().every((n, at, all) => at === 0 || all[at - 1] >= n));
  const first = [...document.querySelectorAll("#functions td:first-child")], drawn = [...document.querySelectorAll("#functions td svg")];
  say("readable", first.every((cell) => cell.offsetWidth > 150) && document.body.scrollWidth <= innerWidth);
  say("comparable", new Set(drawn.map((svg) => svg.getAttribute("width"))).size === 1);
  document.getElementById("tab-timeline").click();
  press("?");
  say("helped", !document.getElementById("keys").hidden);
  press("6");
  document.querySelector("#errors button.link").click();
  while (!query?.done || timeline.selected() === null) await pause();
  say("led", !document.getElementById("timeline").hidden && details().includes("took") && document.querySelector("#details .failed") !== null);
  const found = async (text) => { search.value = text; await timeline.search(text); return parseInt(document.getElementById("found").textContent.replaceAll(",", "")); };
  const failures = number(isFailed), bytes = DATA.shapes.findIndex((shape) => shape.some(([name]) => name === "bytes"));
  say("filtered", (await found("failed")) === failures && failures > 0
    && (await found(">0ns")) === spans.count && (await found("^cuMem")) === number((i) => /^cuMem/i.test(nameOf(i)))
    && (await found("/cuMem(Alloc|Free)_v2/")) > 0 && (await found("nothing like this")) === 0);
  // Arguments are searched, too, and are those of their call.
  const withBytes = Array.from({ length: spans.count }, (_, i) => i).find((i) => kinds.shape[spans.kind[i]] === bytes);
  const text = await detailsOf(withBytes), word = text.match(/bytes=\d+/)[0];
  say("arguments", (await found(`"${word}"`)) > 0 && matches(withBytes));
  press("Escape", search);
  press("0");
  press("n");
  const outer = details();
  press("ArrowDown");
  press("ArrowUp");
  say("nested", details().split("(")[0] === outer.split("(")[0]);
  press("Escape");
  // A click on the middle of a call that the view is full of.
  press("n");
  press("f");
  const chosen = timeline.selected();
  // However near one looks, the axis has another moment at each line.
  const labels = [], context = document.getElementById("canvas").getContext("2d"), write = context.fillText;
  context.fillText = function (text, left, y) { if (y === 12 && left > 10) labels.push(text); return write.apply(this, arguments); };
  press("+");
  timeline.paint();
  say("told apart", labels.length > 2 && new Set(labels).size === labels.length);
  context.fillText = write;
  press("Escape");
  const canvas = document.getElementById("canvas"), box = canvas.getBoundingClientRect();
  canvas.setPointerCapture = () => {};
  const at = (kind, x, y, more) => canvas.dispatchEvent(new PointerEvent(kind, { clientX: box.left + x, clientY: box.top + y, bubbles: true, pointerId: 1, ...more }));
  const row = rowOf(chosen), middle = row.y - document.getElementById("lanes").scrollTop + ((trackOf(chosen).depth + 0.5) * (row.height - 4)) / row.tracks.length;
  const x = 220 + (box.width - 220) / 2;
  at("pointerdown", x, middle);
  at("pointerup", x, middle);
  say("clicked", timeline.selected() === chosen && details().includes(" took "));
  // The pointer shows a name; a marked part of the time has a table; a process hides its threads.
  at("pointermove", x, middle);
  say("named", !document.getElementById("tip").hidden && document.getElementById("tip").textContent.length > 4);
  press("0");
  at("pointerdown", 220, 100, { shiftKey: true });
  at("pointermove", box.width, 100, { shiftKey: true });
  at("pointerup", box.width, 100, { shiftKey: true });
  // Numbers of calls of all tables.
  let marked = 0;
  for (const table of document.querySelectorAll("#details .area table")) {
    const column = [...table.querySelectorAll("th")].findIndex((th) => ["calls", "runs"].includes(th.textContent));
    if (column >= 0) for (const row of table.querySelectorAll("tbody tr")) marked += Number(row.cells[column].textContent.replaceAll(",", ""));
  }
  say("marked", marked === spans.count);
  press("Escape");
  const process = groups.find((group) => group.kind === "process");
  const shown = () => document.getElementById("lanes").scrollHeight, open = groups.at(-1);
  const y = process.y - document.getElementById("lanes").scrollTop + 10, before = process.rows[0].y;
  at("pointerdown", 10, y);
  at("pointerup", 10, y);
  timeline.paint();
  say("collapsed", !process.open && before === process.rows[0].y && shown() > 0 && open !== undefined);
  at("pointerdown", 10, y);
  at("pointerup", 10, y);
  say("in sight", document.getElementById("bottom").getBoundingClientRect().bottom <= innerHeight);
  const launch = Array.from({ length: spans.count }, (_, i) => i).find(hasLabel);
  say("kernels", launch !== undefined && labelOf(launch) !== nameOf(launch));
  // Without records of a GPU a launch leads nowhere, and the page says why.
  timeline.select(launch, true);
  press("g");
  say("explained", timeline.selected() === launch && document.getElementById("status").textContent.includes("--gpu"));
  location.hash = "#view=memory&q=cuMem";
  recall();
  say("recalled", !document.getElementById("memory").hidden && search.value === "cuMem");
}
linked.then(use).catch((error) => say("error", error.stack)).then(() => {
  document.body.append(Object.assign(document.createElement("pre"), { id: "log", textContent: log.join("\n") }));
});
