// Uses the page as a person does, by keys and pointer, and writes down what came of it.
const log = [];
const say = (what, how) => log.push(`${what}: ${how}`);
const press = (key, target) => (target || document.body).dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
const details = () => document.getElementById("details").textContent;
window.onerror = (message) => say("error", message);
setTimeout(() => {
  try {
    say("spans", DATA.spans.length);
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
    say("searched", document.getElementById("found").textContent !== "0 found");
    press("Enter", search);
    say("followed", details().toLowerCase().includes("memcpy"));
    press("Escape", search);
    say("cleared", details().startsWith("Click"));
    const views = [];
    for (const key of "23456") {
      press(key);
      const shown = [...document.querySelectorAll("section")].filter((section) => !section.hidden && section.textContent.trim());
      views.push(shown.map((section) => section.id).join());
    }
    say("views", views.join(" "));
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
    press("5");
    document.querySelector("#errors button.link").click();
    const failures = () => DATA.spans.filter((span) => span[4] >= 8).length;
    say("led", !document.getElementById("timeline").hidden && details().includes("took") && document.querySelector("#details .failed") !== null);
    const found = (text) => { search.value = text; search.dispatchEvent(new Event("input")); return parseInt(document.getElementById("found").textContent); };
    say("filtered", found("failed") === failures() && failures() > 0
      && found(">0ns") === DATA.spans.length && found("^cuMem") === DATA.spans.filter((span) => /^cuMem/i.test(DATA.names[span[3]])).length
      && found("/cuMem(Alloc|Free)_v2/") > 0 && found("nothing like this") === 0);
    press("Escape", search);
    press("0");
    press("n");
    const outer = details();
    press("ArrowDown");
    press("ArrowUp");
    say("nested", details() === outer);
    press("Escape");
    // A click on the middle of a call that the view is full of.
    press("n");
    press("f");
    const name = details();
    // However near one looks, the axis has another moment at each line.
    const labels = [], context = document.getElementById("canvas").getContext("2d"), write = context.fillText;
    context.fillText = function (text, left, y) { if (y === 12) labels.push(text); return write.apply(this, arguments); };
    press("+");
    say("told apart", labels.length > 2 && new Set(labels).size === labels.length);
    context.fillText = write;
    press("Escape");
    const canvas = document.getElementById("canvas"), box = canvas.getBoundingClientRect();
    canvas.setPointerCapture = () => {};
    for (const kind of ["pointerdown", "pointerup"])
      canvas.dispatchEvent(new PointerEvent(kind, { clientX: box.left + box.width / 2, clientY: box.top + 22 + 20 + 18 + 6, bubbles: true, pointerId: 1 }));
    say("clicked", details().includes(" took ") && details() === name);
    // What the pointer is on has a name; a marked part of the time has a table; a process hides its threads.
    const at = (kind, x, y, more) => canvas.dispatchEvent(new PointerEvent(kind, { clientX: box.left + x, clientY: box.top + y, bubbles: true, pointerId: 1, ...more }));
    at("pointermove", box.width / 2, 22 + 20 + 18 + 6);
    say("named", !document.getElementById("tip").hidden && document.getElementById("tip").textContent.length > 4);
    press("0");
    at("pointerdown", 0, 100, { shiftKey: true });
    at("pointermove", box.width, 100, { shiftKey: true });
    at("pointerup", box.width, 100, { shiftKey: true });
    const rows = [...document.querySelectorAll("#details .area tbody tr")].map((row) => Number(row.cells[1].textContent.replaceAll(",", "")));
    say("marked", rows.reduce((sum, n) => sum + n, 0) === DATA.spans.length);
    press("Escape");
    const tall = document.getElementById("rows").offsetHeight;
    at("pointerdown", 10, 22 + 10);
    at("pointerup", 10, 22 + 10);
    say("collapsed", document.getElementById("rows").offsetHeight < tall);
    at("pointerdown", 10, 22 + 10);
    at("pointerup", 10, 22 + 10);
    const box2 = document.getElementById("details").getBoundingClientRect();
    say("in sight", box2.top < innerHeight - 30);
    const launch = DATA.spans.find((span) => span[6] !== undefined);
    say("kernels", launch !== undefined && label(launch) !== DATA.names[launch[3]]);
    location.hash = "#view=memory&q=cuMem";
    recall();
    say("recalled", !document.getElementById("memory").hidden && search.value === "cuMem");
  } catch (error) {
    say("error", error.stack);
  }
  const place = document.createElement("pre");
  place.id = "log";
  place.textContent = log.join("\n");
  document.body.append(place);
}, 50);
