// Busy time: of a track, and of a device as the union of its streams' work. A series has intervals that follow one another.

// Classes that are work of a GPU by themselves; others on streams are copies and fills.
const KERNEL = DATA.classes.indexOf("kernel on the GPU");

// Intervals `first` to `end` of arrays; `before` is the duration of those before each one.
class Series {
  constructor(start, length, before, first, end) {
    Object.assign(this, { start, length, before, first, end });
  }
  // The last interval that begins at `t` or before, or `first - 1`.
  at(t) {
    return firstWith(this.first, this.end, (i) => this.start[i] > t) - 1;
  }
  // Duration of all intervals until `t`.
  busyUntil(t) {
    const i = this.at(t);
    return i < this.first ? 0 : this.before[i] + Math.min(t - this.start[i], this.length[i]);
  }
  busy(from, to) {
    return this.busyUntil(to) - this.busyUntil(from);
  }
  // Series of disjoint intervals from pairs of start and end.
  static from(pairs) {
    const count = pairs.length / 2, [start, length, before] = [0, 0, 0].map(() => new Float64Array(count));
    for (let i = 0, sum = 0; i < count; i++) {
      start[i] = pairs[2 * i];
      length[i] = pairs[2 * i + 1] - start[i];
      before[i] = sum;
      sum += length[i];
    }
    return new Series(start, length, before, 0, count);
  }
}

// Growing list of pairs of start and end, whose starts are sorted; intervals that touch are joined.
class Union {
  constructor(size) {
    this.pairs = new Float64Array(2 * size);
    this.used = 0;
  }
  add(start, end) {
    const { pairs, used } = this;
    if (used && start <= pairs[used - 1]) {
      if (end > pairs[used - 1]) pairs[used - 1] = end;
    } else if (end > start) {
      pairs[used] = start;
      pairs[used + 1] = end;
      this.used += 2;
    }
  }
  done() {
    return this.pairs.slice(0, this.used);
  }
}

// Intervals of a track whose class passes `test`.
function trackPairs(track, test) {
  const union = new Union(track.end - track.first), passes = Uint8Array.from(kinds.class, (of) => (test(of) ? 1 : 0));
  for (let i = track.first; i < track.end; i++) if (passes[spans.kind[i]]) union.add(spans.start[i], endOf(i));
  return union.done();
}

function unionOf(one, two) {
  const union = new Union((one.length + two.length) / 2);
  let [a, b] = [0, 0];
  while (a < one.length || b < two.length) {
    if (b >= two.length || (a < one.length && one[a] <= two[b])) { union.add(one[a], one[a + 1]); a += 2; }
    else { union.add(two[b], two[b + 1]); b += 2; }
  }
  return union.done();
}

// Union of the spans of tracks whose class passes `test`.
function busyPairs(tracks, test = () => true) {
  let lists = tracks.map((track) => trackPairs(track, test));
  while (lists.length > 1) {
    const next = [];
    for (let at = 0; at < lists.length; at += 2) next.push(at + 1 < lists.length ? unionOf(lists[at], lists[at + 1]) : lists[at]);
    lists = next;
  }
  return lists[0] ?? new Float64Array(0);
}

const LEVELS = [];
// Summaries of 16 spans, of 16 summaries, and so on: the class with the most time, and its time. They give the colour of a pixel with
// many spans. A summary that begins in one track and ends in another is not used, since only whole ones within a pixel are.
function summarize() {
  const classes = new Uint8Array(spans.count);
  for (let i = 0; i < spans.count; i++) classes[i] = kinds.class[spans.kind[i]];
  summary(classes, spans.length, 1);
  while (LEVELS.at(-1).best.length > 16) summary(LEVELS.at(-1).best, LEVELS.at(-1).most, 0);
}
// Adds a level: `more` is added to each time, so that spans without one count.
function summary(classes, times, more) {
  const blocks = classes.length >>> 4, best = new Uint8Array(blocks), most = new Float32Array(blocks), sums = new Float64Array(DATA.classes.length);
  for (let block = 0, i = 0; block < blocks; block++) {
    sums.fill(0);
    for (const end = i + 16; i < end; i++) {
      const sum = (sums[classes[i]] += times[i] + more);
      if (sum > most[block]) { most[block] = sum; best[block] = classes[i]; }
    }
  }
  LEVELS.push({ best, most });
}

const classSums = new Float64Array(DATA.classes.length);
// The class with the most time of spans `from` to `end`.
function mainClass(from, end) {
  classSums.fill(0);
  let level = -1;
  while (end - from > 48 && level + 1 < LEVELS.length) {
    [from, end] = [(from + 15) >>> 4, end >>> 4];
    level++;
  }
  if (level < 0) for (let i = from; i < end; i++) classSums[kinds.class[spans.kind[i]]] += spans.length[i] + 1;
  else {
    const { best, most } = LEVELS[level];
    for (let i = from; i < end; i++) classSums[best[i]] += most[i];
  }
  let found = 0;
  for (let of = 1; of < classSums.length; of++) if (classSums[of] > classSums[found]) found = of;
  return found;
}
