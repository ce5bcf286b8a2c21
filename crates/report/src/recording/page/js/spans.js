// All spans as typed arrays, by track and start, and the properties of a span by its position.
//
// The spans of a track follow one another, so that ends are sorted like starts. Only the last of the 100 tracks of a row may have
// spans that overlap.

const spans = { count: DATA.spans, tracks: [] };
const kinds = {};
let names = null;

async function loadSpans() {
  const ofKinds = [["name", Uint32Array], ["label", Uint32Array], ["class", Uint8Array], ["failed", Uint8Array], ["result", Uint32Array], ["shape", Uint32Array]];
  await Promise.all([
    texts("names", DATA.names).then((all) => (names = all)),
    ...ofKinds.map(async ([key, Type]) => (kinds[key] = await column("kind-" + key, DATA.span_kinds, Type))),
    column("gap", spans.count, Float64Array).then((gaps) => (spans.start = gaps)),
    numbers("duration", spans.count, DATA.longest).then((durations) => (spans.length = durations)),
    column("kind", spans.count, DATA.span_kinds > 0xffff ? Uint32Array : Uint16Array).then((of) => (spans.kind = of)),
  ]);
  // Duration of the spans before each one on its track.
  spans.before = new Float64Array(spans.count);
  const { start, length, kind, before } = spans, failed = [];
  let [first, end] = [0, 0];
  for (const [row, depth, size] of DATA.tracks) {
    const track = { row, depth, first, end: first + size };
    let sum = 0;
    for (let i = first; i < track.end; i++) {
      start[i] = end += unzigzag(start[i]);
      end += length[i];
      before[i] = sum;
      sum += length[i];
      if (kinds.failed[kind[i]]) failed.push(i);
    }
    track.busy = sum;
    first = track.end;
    spans.tracks.push(track);
  }
  spans.failed = Uint32Array.from(failed);
}

// First position of `from` to `end` for which `test` is true, if it is false before and true after.
function firstWith(from, end, test) {
  while (from < end) {
    const middle = (from + end) >>> 1;
    if (test(middle)) end = middle;
    else from = middle + 1;
  }
  return from;
}

const endOf = (i) => spans.start[i] + spans.length[i];
const nameOf = (i) => names.get(kinds.name[spans.kind[i]]);
// The text on a span: the kernel of a launch, otherwise the name.
const labelOf = (i) => names.get(kinds.label[spans.kind[i]]);
const hasLabel = (i) => kinds.label[spans.kind[i]] !== kinds.name[spans.kind[i]];
const classOf = (i) => kinds.class[spans.kind[i]];
const isFailed = (i) => kinds.failed[spans.kind[i]] === 1;
const trackOf = (i) => spans.tracks[firstWith(0, spans.tracks.length, (at) => spans.tracks[at].end > i)];
const rowOf = (i) => rows[trackOf(i).row];
const isWork = (i) => isOfDevice(rowOf(i));

// The call that launched each work, from 1, and 0 for other spans; and work by call: positions in `list` from `first[call]` to
// `first[call + 1]`. Both are read after the page has opened.
let launched = null;
async function loadLaunches() {
  const launch = await column("launch", spans.count, Uint32Array), first = new Uint32Array(spans.count + 2);
  let all = 0;
  for (let i = 0; i < spans.count; i++) if (launch[i]) { first[launch[i] + 1]++; all++; }
  for (let i = 1; i < first.length; i++) first[i] += first[i - 1];
  const list = new Uint32Array(all);
  for (let i = 0; i < spans.count; i++) if (launch[i]) list[first[launch[i]]++] = i;
  launched = { launch, first, list };
}
const launchOf = (i) => (launched && launched.launch[i] ? launched.launch[i] - 1 : null);
const worksOf = (call) => (launched ? launched.list.subarray(launched.first[call], launched.first[call + 1]) : []);
// The launch of work, or the work of a launch.
const partnersOf = (i) => (launchOf(i) === null ? worksOf(i) : [launchOf(i)]);
