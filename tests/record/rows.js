// Looks at the rows of a recording with kernels that overlap: what is drawn of them, busy and idle time, launches.
const log = [];
const say = (what, how) => log.push(`${what}: ${how}`);
window.onerror = (message) => say("error", message);
async function use() {
  say("spans", spans.count);
  say("check", JSON.stringify(cudatraceCheck()));
  say("groups", groups.map((group) => group.title).join(", "));
  say("rows", groups.flatMap((group) => group.rows.map((row) => row.label)).join(", "));
  // Pixels of a row with the colour of its class, by column, from the lowest line of its first track.
  timeline.paint();
  const canvas = document.getElementById("canvas"), lanes = document.getElementById("lanes");
  const pixelsOf = (row) => {
    const top = row.y - lanes.scrollTop, high = (row.height - 4) / row.tracks.length;
    const { data } = canvas.getContext("2d").getImageData(0, Math.floor(top + high - 4), canvas.width, 1);
    return new Uint32Array(data.buffer).slice(220);
  };
  const stream = groups[0].rows[0], filled = pixelsOf(stream).filter((pixel) => pixel === theme.strong[KERNEL]).length;
  const ran = cudatraceCheck().find((row) => row.kind === "s").busy / DATA.length;
  say("drawn", filled > (canvas.width - 220) * ran * 0.9 && filled < (canvas.width - 220) * (ran + 0.2));
  // Where spans are shorter than a pixel, the height of each column is the share of its time.
  const [wide, high] = [220, 1000], scale = wide / DATA.length, [track] = stream.tracks;
  const frame = { pixels: new Uint32Array(wide * high), width: wide, height: high, ratio: 1, left: 0, top: 0, from: 0, scale };
  paintIntervals(frame, spans, track.first, track.end, 0, high, plainLook(1));
  const series = new Series(spans.start, spans.length, spans.before, track.first, track.end), errors = [];
  for (let x = 0; x < wide; x++) {
    let tall = 0;
    for (let y = 0; y < high; y++) tall += frame.pixels[y * wide + x];
    errors.push(Math.abs(tall / high - series.busy(x / scale, (x + 1) / scale) * scale));
  }
  say("heights", Math.max(...errors) < 0.005);
  // Kernels of two streams overlap: the device is busy while one of them runs.
  const [device] = deviceUse(0, DATA.length), busy = busyPairs(groups[0].rows.flatMap((row) => row.tracks));
  let sum = 0;
  for (let i = 0; i < busy.length; i += 2) sum += busy[i + 1] - busy[i];
  say("kernels", device.kernels === sum && device.busy === sum && sum < cudatraceCheck().filter((row) => row.kind === "s").reduce((sum, row) => sum + row.busy, 0));
  say("idle", device.idle === DATA.length - sum);
  const works = Array.from({ length: spans.count }, (_, i) => i).filter(isWork);
  say("launched", works.length === 5000 && works.every((i) => labelOf(launchOf(i)) === nameOf(i) && nameOf(launchOf(i)) === "cuLaunchKernel" && worksOf(launchOf(i))[0] === i));
}
linked.then(use).catch((error) => say("error", error.stack)).then(() => {
  document.body.append(Object.assign(document.createElement("pre"), { id: "log", textContent: log.join("\n") }));
});
