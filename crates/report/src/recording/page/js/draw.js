// Draws the timeline. Spans become pixels of one image: a box where a span is two pixels wide or more, otherwise a column whose height is
// the share of the pixel's time in which spans ran. Each pixel is one search in sorted starts, so that the time of a frame depends on
// the number of pixels and not on that of spans.

const COLORS = ["#4e79d8", "#e08a2c", "#3f9e6c", "#8c6bc4", "#7a8793", "#5fb3c4", "#a9b4bf", "#76a03a", "#c77daa", "#9aa5b1",
  "#9aa5b1", "#e3b341", "#d9765f", "#e08a2c", "#b7a1d6", "#8fbf9f"];
// Colours of text on these.
const INKS = ["#fff", "#1c1206", "#fff", "#fff", "#fff", "#06202a", "#11181f", "#141d06", "#1f0f18", "#11181f",
  "#11181f", "#1c1206", "#1c1206", "#1c1206", "#11181f", "#11181f"];
const FAILED = "#d64541";
// Classes have the order of `DATA.classes`; a copy on a device has the colour of a copy.
const COPY = DATA.classes.indexOf("copy, fill");

// Colours of the page, as text and as pixels; read again when the colour scheme changes.
const theme = {};
function readTheme() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["back", "front", "soft", "line", "panel", "accent", "mark"]) theme[name] = style.getPropertyValue("--" + name).trim();
  const back = channels(theme.back), pixel = ([r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
  const mixed = (color, part) => pixel(channels(color).map((of, at) => Math.round(of * part + back[at] * (1 - part))));
  theme.pixels = { back: pixel(back), panel: mixed(theme.panel, 1), line: mixed(theme.line, 1), accent: mixed(theme.accent, 1), soft: mixed(theme.soft, 0.7), light: mixed(theme.accent, 0.35), failed: mixed(FAILED, 1), dimFailed: mixed(FAILED, 0.3) };
  theme.strong = COLORS.map((color) => mixed(color, 1));
  theme.dim = COLORS.map((color) => mixed(color, 0.25));
}
const channels = (color) => [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));

// Fills a rectangle of the image; all numbers are device pixels, and rows above `frame.top` are the axis.
function fillPixels(frame, left, right, top, bottom, color) {
  [left, right] = [Math.max(left, frame.left), Math.min(right, frame.width)];
  [top, bottom] = [Math.max(top, frame.top), Math.min(bottom, frame.height)];
  for (let y = top; y < bottom; y++) frame.pixels.fill(color, y * frame.width + left, Math.max(y * frame.width + right, y * frame.width + left));
}
function fillColumn(frame, x, top, bottom, color) {
  if (x < frame.left || x >= frame.width) return;
  [top, bottom] = [Math.max(top, frame.top), Math.min(bottom, frame.height)];
  for (let at = top * frame.width + x; top < bottom; top++, at += frame.width) frame.pixels[at] = color;
}

// Draws intervals of sorted arrays. `look` has colours: `box(i)` of one interval, `column(i, end)` of several, and with a search
// `match(i, end)`, the time of those that match, and `strong(i, end)`, their colour.
function paintIntervals(frame, { start, length, before }, first, end, top, bottom, look) {
  const { from, scale, left, width } = frame, height = bottom - top, least = Math.min(2 * Math.ceil(frame.ratio), height);
  let i = firstWith(first, end, (at) => start[at] + length[at] > from);
  let carry = 0, carryAt = -1, painted = -1;
  const paint = (x, busy, color) => {
    const tall = Math.max(least, Math.round(Math.min(busy * scale, 1) * height));
    fillColumn(frame, x, bottom - tall, bottom, color);
  };
  while (i < end) {
    const x = left + Math.floor((start[i] - from) * scale);
    let color = null;
    for (; carry > 0 && x > carryAt; carry -= 1 / scale) paint(carryAt++, Math.min(carry, 1 / scale), look.column(i - 1, i));
    if (x >= width) break;
    if (length[i] * scale >= 2) {
      const right = Math.min(Math.max(left + Math.floor((start[i] + length[i] - from) * scale), x + 2), width);
      const begin = x === painted ? x + 1 : Math.max(x, left);
      // A line between neighbours, where there is room for it.
      fillPixels(frame, begin, right - begin > 3 * frame.ratio ? right - Math.ceil(frame.ratio) : right, top, bottom, look.box(i));
      look.boxes?.push(i, begin, right, top);
      i++;
      carry = 0;
      continue;
    }
    const next = from + (x + 1 - left) / scale;
    let low = i, step = 1;
    while (low + step < end && start[low + step] < next) { low += step; step *= 2; }
    let high = Math.min(low + step, end);
    low++;
    while (low < high) { const middle = (low + high) >>> 1; if (start[middle] < next) low = middle + 1; else high = middle; }
    // A long span that begins in this pixel is a box of its own.
    if (low - 1 > i && length[low - 1] * scale >= 2) low--;
    const last = low - 1, over = Math.max(start[last] + length[last] - next, 0);
    const busy = before[last] + length[last] - before[i] - over + (carryAt === x && carry > 0 ? carry : 0);
    color = look.column(i, low);
    paint(x, busy, color);
    if (look.match) {
      const matched = look.match(i, low);
      if (matched > 0) paint(x, Math.min(matched, busy), look.strong(i, low));
    }
    painted = x;
    [carry, carryAt] = [over, x + 1];
    i = low;
  }
  for (; carry > 0 && carryAt < width; carry -= 1 / scale) paint(carryAt++, Math.min(carry, 1 / scale), look.column(i - 1, i));
}

// Colours of spans by class; with a search, those that do not match are dim.
function spanLook(boxes) {
  const { kind } = spans, ofKind = (i, list) => (kinds.failed[kind[i]] ? (list === theme.dim ? theme.pixels.dimFailed : theme.pixels.failed) : list[kinds.class[kind[i]]]);
  if (!query) return { boxes, box: (i) => ofKind(i, theme.strong), column: (i, end) => theme.strong[mainClass(i, end)] };
  return {
    boxes,
    box: (i) => ofKind(i, matches(i) ? theme.strong : theme.dim),
    column: (i, end) => theme.dim[mainClass(i, end)],
    // The first that matches gives the colour.
    strong: (i, end) => theme.strong[classOf(firstWith(i, end - 1, (at) => query.before[at + 1] > query.before[i]))],
    match: (i, end) => query.before[end] - query.before[i],
  };
}
const plainLook = (color) => ({ box: () => color, column: () => color });

// Failed spans that are too short for a box: a column in the height of the row, so that none is hidden by its neighbours.
function paintFailures(frame, track, top, bottom) {
  const { failed, start, length } = spans, { from, scale, left, width } = frame;
  const end = firstWith(0, failed.length, (at) => failed[at] >= track.end);
  let at = firstWith(0, end, (at) => failed[at] >= track.first);
  at = firstWith(at, end, (at) => endOf(failed[at]) > from);
  while (at < end) {
    const i = failed[at], x = left + Math.floor((start[i] - from) * scale);
    if (x >= width) return;
    if (length[i] * scale < 2) fillColumn(frame, x, top, bottom, query && !matches(i) ? theme.pixels.dimFailed : theme.pixels.failed);
    const next = from + (x + 1 - left) / scale;
    at = firstWith(at + 1, end, (at) => start[failed[at]] >= next);
  }
}

// A curve: of each pixel its largest value, above the line of 0.
function paintCurve(frame, { times, values, least, most }, top, bottom) {
  const { from, scale, left, width } = frame, range = Math.max(most - least, 1), height = bottom - top - 1;
  const y = (value) => bottom - Math.round(((value - least) / range) * height);
  const zero = y(0);
  let at = firstWith(0, times.length, (at) => times[at] > from);
  let value = at ? values[at - 1] : 0;
  for (let x = left; x < width; x++) {
    const next = from + (x + 1 - left) / scale;
    let [high, low] = [value, value];
    for (; at < times.length && times[at] < next; at++) {
      value = values[at];
      if (value > high) high = value;
      if (value < low) low = value;
    }
    const above = y(Math.max(high, 0)), below = y(Math.min(low, 0));
    if (high > 0) fillColumn(frame, x, above, zero, theme.pixels.light);
    if (low < 0) fillColumn(frame, x, zero, below, theme.pixels.light);
    if (high !== 0 || low !== 0) fillColumn(frame, x, y(high) - Math.ceil(frame.ratio), Math.max(y(low), y(high)), theme.pixels.accent);
  }
}

// Bins of spans that the page does not have one by one: hatched, so that they are not taken for spans. Several bins in a pixel are its
// mean.
function paintBins(frame, bins, top, bottom) {
  const { from, scale, left, width } = frame, height = bottom - top, least = Math.ceil(2 * frame.ratio);
  const shares = new Float64Array(width), begun = new Uint8Array(width);
  for (let at = firstWith(0, bins.length, (at) => bins[at].end > from); at < bins.length; at++) {
    const { start, end, share, spans } = bins[at], [a, b] = [start, end].map((t) => left + (t - from) * scale);
    if (a >= width) break;
    for (let x = Math.max(Math.floor(a), left); x < Math.min(b, width); x++) {
      shares[x] += (Math.min(b, x + 1) - Math.max(a, x)) * share;
      if (share || spans) begun[x] = 1;
    }
  }
  for (let x = left; x < width; x++) if (begun[x] && x % 3) fillColumn(frame, x, bottom - Math.max(least, Math.round(Math.min(shares[x], 1) * height)), bottom, theme.pixels.soft);
}

// Widths of texts, by text.
const widths = new Map();
function widthOf(g, text) {
  if (widths.size > 20000) widths.clear();
  return widths.get(text) ?? widths.set(text, g.measureText(text).width).get(text);
}
// The name of a kernel without its result, namespaces and parameters: `fill` of `void lib::fill<float>(float*)`.
function shortName(text) {
  const plain = text.replace(/^void /, ""), end = plain.search(/[<(]/);
  return end > 0 ? plain.slice(plain.lastIndexOf("::", end) + (plain.lastIndexOf("::", end) < 0 ? 1 : 2), end) : plain;
}
// The text, or as much of it as there is room for.
function fitted(g, text, room) {
  const wide = widthOf(g, text);
  if (wide <= room) return text;
  let kept = Math.floor((text.length * (room - 10)) / wide);
  while (kept > 1 && g.measureText(text.slice(0, kept)).width > room - 10) kept--;
  return kept < 2 ? "" : text.slice(0, kept) + "…";
}
