// Rows of the timeline in groups: devices with their streams, memory and counters, processes with their threads. A row has tracks of
// spans, points of a curve, or bins of spans that the page does not have one by one.

const rows = DATA.rows.map(([kind, pid, tid, comm, program, device], number) => ({ kind, pid, tid, comm, program, device, number, tracks: [], bins: null, points: null }));
const groups = [];

// Names of a row: in the margin, and in sentences.
const streamName = (row) => (row.kind === "i" ? "without kernel" : row.tid === 0xffff ? "other streams" : `stream ${row.tid}`);
const isOfDevice = (row) => row.kind === "s" || row.kind === "i";
const placeOf = (row) => (isOfDevice(row) ? `${row.device === undefined ? "" : DATA.devices[row.device] + " "}${streamName(row)} of ${row.pid}` : `${row.comm} ${row.pid}/${row.tid}`);
// Words that a search finds spans of a row by.
const wordsOf = (row) => `${row.program} ${placeOf(row)}`;

async function loadRows() {
  for (const track of spans.tracks) rows[track.row].tracks.push(track);
  await loadBins();
  const used = rows.filter((row) => row.tracks.length || row.bins);
  const streams = used.filter((row) => row.kind === "s"), idle = used.filter((row) => row.kind === "i");
  const byNumber = (a, b) => a.pid - b.pid || a.tid - b.tid || (a.kind === "n" ? -1 : 1);
  DATA.devices.forEach((name, device) => {
    const own = streams.filter((row) => row.device === device).sort(byNumber), tracks = own.flatMap((row) => row.tracks);
    const kernels = busyPairs(tracks, (of) => of === KERNEL), others = busyPairs(tracks, (of) => of !== KERNEL);
    const processes = new Set(own.map((row) => row.pid)).size;
    const gaps = idle.filter((row) => row.device === device).sort(byNumber);
    for (const row of [...own, ...gaps]) row.label = processes > 1 ? `${streamName(row)} of ${row.pid}` : streamName(row);
    let work = null;
    const group = { kind: "device", title: name, rows: [...own, ...gaps], unit: "stream", kernels: Series.from(kernels), copies: Series.from(others), bins: joinedBins(own), work: () => (work ??= Series.from(unionOf(kernels, others))) };
    groups.push(group);
  });
  const threads = used.filter((row) => !isOfDevice(row)).sort(byNumber);
  for (const [pid, own] of byKey(threads, (row) => row.pid)) {
    for (const row of own) row.label = row.kind === "n" ? `NVTX of ${row.tid}` : `${row.comm || "thread"} ${row.tid}`;
    // Names of threads are cut by the kernel, that of the program is not.
    groups.push({ kind: "process", title: `${own[0].program || "process"} ${pid}`, rows: own, unit: "thread" });
  }
  const curves = await loadCurves();
  if (curves.length) groups.push({ kind: "curves", title: curves.every((row) => row.kind === "memory") ? "memory" : curves.some((row) => row.kind === "memory") ? "memory and counters" : "counters", rows: curves, unit: "curve" });
  for (const group of groups) {
    group.open = true;
    for (const row of group.rows) row.group = group;
  }
}

function byKey(list, key) {
  const found = new Map();
  for (const one of list) found.has(key(one)) ? found.get(key(one)).push(one) : found.set(key(one), [one]);
  return found;
}

// Bins of the spans that the page does not have one by one.
async function loadBins() {
  const { bins, width, start } = DATA.density;
  const [row, bin, busy, begun] = [await column("density-row", bins, Uint32Array), await column("density-bin", bins, Float64Array), await column("density-busy", bins, Float64Array), await column("density-spans", bins, Float64Array)];
  for (let i = 0; i < bins; i++) {
    rows[row[i]].bins ??= [];
    rows[row[i]].bins.push({ start: start + bin[i] * width, end: start + (bin[i] + 1) * width, share: Math.min(busy[i] / width, 1), busy: busy[i], spans: begun[i] });
  }
}

// Bins of all rows of a group: their work may overlap, so that the shares are upper bounds.
function joinedBins(list) {
  const found = new Map();
  for (const bin of list.flatMap((row) => row.bins ?? [])) {
    const sum = found.get(bin.start);
    if (sum) Object.assign(sum, { busy: sum.busy + bin.busy, spans: sum.spans + bin.spans, share: Math.min(sum.share + bin.share, 1) });
    else found.set(bin.start, { ...bin });
  }
  return [...found.values()].sort((a, b) => a.start - b.start);
}

// Curves of memory and counters.
async function loadCurves() {
  const all = DATA.areas.reduce((sum, area) => sum + area[2], 0);
  const [times, values] = [await column("area-time", all, Float64Array), await column("area-value", all, Float64Array)];
  let first = 0;
  return DATA.areas.map(([kind, name, length, thinned]) => {
    const points = { times: times.subarray(first, first + length).map(unzigzag), values: values.subarray(first, first + length).map(unzigzag) };
    first += length;
    points.least = points.values.reduce((least, value) => Math.min(least, value), 0);
    points.most = points.values.reduce((most, value) => Math.max(most, value), 0);
    const words = kind === "memory" ? (n) => size(n) : (n) => count(n);
    return { kind, label: kind === "memory" ? `${name} memory` : name, name, points, thinned, words, tracks: [], bins: null };
  });
}
// The number of threads, and of streams.
const threadCount = () => rows.filter((row) => row.kind === "t").length;
const streamCount = () => rows.filter((row) => row.kind === "s").length;

// Busy time of each row by the arrays that are drawn: number of spans, sum of durations, and time in which at least one span ran.
function cudatraceCheck() {
  return rows.map((row) => {
    const pairs = busyPairs(row.tracks), bins = row.bins ?? [];
    let [count, total, busy] = [0, 0, 0];
    for (const track of row.tracks) {
      count += track.end - track.first;
      total += track.busy;
    }
    for (let i = 0; i < pairs.length; i += 2) busy += pairs[i + 1] - pairs[i];
    const [more, moreBusy] = [bins.reduce((sum, bin) => sum + bin.spans, 0), bins.reduce((sum, bin) => sum + bin.busy, 0)];
    return { kind: row.kind, pid: row.pid, tid: row.tid, count, total, busy, more, moreBusy };
  });
}
