// From a launch to its kernel on the GPU and back, by the key and by the button.
const log = [];
const say = (what, how) => log.push(`${what}: ${how}`);
const press = (key) => document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
const details = () => document.getElementById("details").textContent;
const status = () => document.getElementById("status").textContent;
window.onerror = (message) => say("error", message);
async function use() {
  say("spans", spans.count);
  say("check", JSON.stringify(cudatraceCheck()));
  const all = Array.from({ length: spans.count }, (_, i) => i);
  const launch = all.find((i) => nameOf(i) === "cuLaunchKernel" && launchOf(i) === null && worksOf(i).length === 1);
  timeline.choose(launch);
  say("told", / later, for /.test(details()));
  press("g");
  const there = timeline.selected();
  say("arrived", isWork(there) && !isWork(launch) && /in GPU 0 stream \d+ of \d+ \(kernel on the GPU\)/.test(details()));
  say("same kernel", nameOf(there) === labelOf(launch));
  document.querySelector("#details button").click();
  say("returned", timeline.selected() === launch);
  const other = all.find((i) => !partnersOf(i).length && nameOf(i).startsWith("cuMem"));
  timeline.choose(other);
  press("g");
  say("explained", timeline.selected() === other && /^(This call|No work)/.test(status()));
  say("table", document.querySelector("#kernels th").textContent.includes("on the GPU"));
  const cards = [...document.querySelectorAll("#cards div")].map((card) => card.textContent);
  say("card", cards.some((text) => text.startsWith("GPU 0")));
  // Streams are no threads.
  say("streams", cards[0].includes(`${threadCount()} thread`) && cards[0].includes(`${streamCount()} stream`) && threadCount() === new Set(all.filter((i) => !isWork(i)).map(rowOf)).size);
  // A launch is time of the host, its kernel time of the GPU.
  timeline.markArea(0, DATA.length);
  const tables = new Map([...document.querySelectorAll("#details .area h2")].map((head) => [head.textContent.split(":")[0], head.nextElementSibling]));
  const sum = (table, name) => {
    const column = [...table.querySelectorAll("th")].findIndex((th) => th.textContent === name);
    return [...table.querySelectorAll("tbody tr")].reduce((sum, row) => sum + Number(row.cells[column].textContent.replaceAll(",", "")), 0);
  };
  say("apart", sum(tables.get("Kernels on the GPU"), "runs") === all.filter((i) => isWork(i) && classOf(i) === KERNEL).length
    && sum(tables.get("Calls of the host"), "calls") === all.filter((i) => !isWork(i)).length);
  const use = deviceUse(0, DATA.length)[0], device = groups[0];
  say("idle", tables.has("Devices") && Math.abs(use.idle + use.busy - DATA.length) < 1 && use.kernels <= use.busy && use.longest > 0 && device.kind === "device");
}
linked.then(use).catch((error) => say("error", error.stack)).then(() => {
  document.body.append(Object.assign(document.createElement("pre"), { id: "log", textContent: log.join("\n") }));
});
