// From a launch to its kernel on the GPU and back, by the key and by the button.
const log = [];
const say = (what, how) => log.push(`${what}: ${how}`);
const press = (key) => document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
const details = () => document.getElementById("details").textContent;
window.onerror = (message) => say("error", message);
setTimeout(() => {
  try {
    const launch = DATA.spans.findIndex((span) => DATA.names[span[NAME]] === "cuLaunchKernel" && span[PAIR] && DATA.spans.filter((other) => other[PAIR] === span[PAIR]).length === 2);
    timeline.choose(launch);
    say("told", / later, for /.test(details()));
    press("g");
    const there = timeline.selected();
    say("arrived", there[THREAD] !== DATA.spans[launch][THREAD] && /in GPU 0 stream \d+ of \d+ \(kernel on the GPU\)/.test(details()));
    say("same kernel", DATA.names[there[NAME]] === label(DATA.spans[launch]));
    document.querySelector("#details button").click();
    say("returned", timeline.selected() === DATA.spans[launch]);
    say("table", document.querySelector("#kernels th").textContent.includes("on the GPU"));
    say("card", [...document.querySelectorAll("#cards dt")].some((dt) => dt.textContent === "GPU 0"));
  } catch (error) { say("error", error.stack); }
  document.body.append(Object.assign(document.createElement("pre"), { id: "log", textContent: log.join("\n") }));
}, 100);
