// Looks at the first rows of very many, and at the last.
const log = [];
const press = (key) => document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
const pause = () => new Promise((next) => setTimeout(next, 100));
window.onerror = (message) => log.push(`error: ${message}`);
async function use() {
  const canvas = document.getElementById("canvas"), box = document.getElementById("lanes");
  const colors = () => {
    timeline.paint();
    return new Set(new Uint32Array(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.buffer)).size;
  };
  const first = colors();
  press("PageDown");
  const scrolled = box.scrollTop > 0;
  box.scrollTop = box.scrollHeight;
  await pause();
  log.push(`drawn: ${first > 2 && scrolled && colors() > 2}`);
  press("p");
  await pause();
  box.scrollTop = box.scrollHeight;
  await pause();
  // The row of the selected call is the last one.
  const at = canvas.getBoundingClientRect();
  canvas.setPointerCapture = () => {};
  for (const kind of ["pointerdown", "pointerup"])
    canvas.dispatchEvent(new PointerEvent(kind, { clientX: at.left + at.width / 2, clientY: at.bottom - 4 - 6, bubbles: true, pointerId: 1 }));
  log.push(`last: ${document.getElementById("details").textContent.match(/\d+\/\d+/)}`);
}
opened.then(use).catch((error) => log.push(`error: ${error.stack}`)).then(() => {
  document.body.append(Object.assign(document.createElement("pre"), { id: "log", textContent: log.join("\n") }));
});
