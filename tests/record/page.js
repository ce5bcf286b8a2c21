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
    say("led", !document.getElementById("timeline").hidden && details().includes("took") && document.querySelector("#details .failed") !== null || details().includes(search.value));
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
      canvas.dispatchEvent(new PointerEvent(kind, { clientX: box.left + box.width / 2, clientY: box.top + 22 + 18 + 6, bubbles: true, pointerId: 1 }));
    say("clicked", details().includes(" took ") && details() === name);
  } catch (error) {
    say("error", error.stack);
  }
  const place = document.createElement("pre");
  place.id = "log";
  place.textContent = log.join("\n");
  document.body.append(place);
}, 50);
