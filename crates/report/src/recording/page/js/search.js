// Search: `failed`, `>1ms`, `"exactly this name"`, `/pattern/`, `^cuMem`, or a part of a name, an argument or a thread. All words must
// match.
//
// A word is tested once for each name and row. Arguments are tested span by span, in steps that leave the page responsive.

let query = null; // words, matches by span, matches before each span, number of matches
let searches = 0;

// Tests of a word: `text` of a name or argument, `length` of a duration, `failed`.
function wordTest(word) {
  const long = word.match(/^([<>])=?([\d.]+)(ns|us|µs|ms|s)$/);
  if (long) {
    const ns = Number(long[2]) * { ns: 1, us: 1e3, µs: 1e3, ms: 1e6, s: 1e9 }[long[3]];
    return { length: long[1] === ">" ? (n) => n >= ns : (n) => n <= ns };
  }
  if (word.toLowerCase() === "failed") return { failed: true };
  if (/^".*"$/s.test(word)) {
    const exact = word.slice(1, -1);
    return { text: (text) => text === exact, argument: (text) => text.split(" ").includes(exact), row: () => false };
  }
  const slashes = word.match(/^\/(.+)\/$/s);
  if (slashes || /^\^|\$$|\.\*/.test(word)) {
    try {
      const pattern = new RegExp(slashes ? slashes[1] : word, "i"), test = (text) => pattern.test(text);
      return { text: test, argument: test, row: test };
    } catch {
      return { text: () => false, argument: () => false, row: () => false };
    }
  }
  const part = word.toLowerCase(), test = (text) => text.toLowerCase().includes(part);
  return { text: test, argument: test, row: test, part };
}

// A test of a field: true, false, or a function of the position among the spans of the shape and of the span. Texts are tested once for
// each text, and numbers only if the word may be a part of one.
function fieldTest(test, { name, type, write, number }) {
  const key = name.toLowerCase() + "=", { part } = test;
  if (part !== undefined && key.includes(part)) return true;
  if (type === "t" || type === "l") {
    const found = new Map();
    return (rank, i) => {
      const of = number(rank, i);
      let is = found.get(of);
      if (is === undefined) found.set(of, (is = test.argument(`${name}=${write(rank, i)}`)));
      return is;
    };
  }
  if (part !== undefined) {
    const at = part.indexOf("="), digits = part.slice(at + 1);
    if (/[^-0-9a-fx]/.test(digits) || (at >= 0 && !key.endsWith(part.slice(0, at + 1)))) return false;
    return at >= 0 ? (rank, i) => write(rank, i).startsWith(digits) : (rank, i) => write(rank, i).includes(digits);
  }
  return (rank, i) => test.argument(`${name}=${write(rank, i)}`);
}

// Tests of the fields of a shape, by word; without those that are false.
async function shapeTests(shape, texts) {
  const fields = await writers(shape);
  return texts.map((test) => {
    const found = fields.map((field) => fieldTest(test, field));
    return found.includes(true) ? [() => true] : found.filter((test) => test !== false);
  });
}

// Searches; `progress` is called when the number of matches has changed. A later search ends an earlier one.
async function search(text, progress) {
  const own = ++searches;
  const words = text.match(/"[^"]*"|\/(?:[^/\\]|\\.)+\/|\S+/g) ?? [];
  if (!words.length) {
    query = null;
    return progress(true);
  }
  const tests = words.map(wordTest), texts = tests.filter((test) => test.text);
  const bits = 2 ** texts.length - 1;
  // Bit `n` is set if the word `n` matches the name, label or result of a kind, or the row.
  const maskOf = (matches) => texts.reduce((mask, test, n) => mask | (matches(test) ? 1 << n : 0), 0);
  const byName = new Map(), maskOfName = (n) => byName.get(n) ?? byName.set(n, maskOf((test) => test.text(names.get(n)))).get(n);
  const byKind = Uint32Array.from(kinds.name, (name, at) => maskOfName(name) | maskOfName(kinds.label[at]) | (names.get(kinds.result[at]) ? maskOfName(kinds.result[at]) : 0));
  const byRow = rows.map((row) => maskOf((test) => test.row(wordsOf(row))));
  const lengths = tests.filter((test) => test.length), needsFailure = tests.some((test) => test.failed);
  const match = new Uint8Array(spans.count), rest = [];
  const { kind, length } = spans;
  for (const track of spans.tracks)
    for (let i = track.first; i < track.end; i++) {
      if (needsFailure && !kinds.failed[kind[i]]) continue;
      if (lengths.length && !lengths.every((test) => test.length(length[i]))) continue;
      if ((byKind[kind[i]] | byRow[track.row]) === bits) match[i] = 1;
      else if (DATA.shapes[kinds.shape[kind[i]]].length) match[i] = 2;
    }
  if (own !== searches) return;
  publish(match, progress, false);
  if (await searchArguments(match, texts, bits, byKind, byRow, own)) publish(match, progress, true);
}

// Tests the arguments of spans with 2: those become 1 or 0. Returns whether no later search began.
async function searchArguments(match, texts, bits, byKind, byRow, own) {
  const ofShape = [], { kind } = spans;
  let until = performance.now() + 12;
  for (const track of spans.tracks)
    for (let i = track.first; i < track.end; i++) {
      if ((i & 1023) === 0 && performance.now() > until) {
        $("found").textContent = `searching arguments … ${Math.round((100 * i) / spans.count)} %`;
        await new Promise((next) => setTimeout(next));
        if (own !== searches) return false;
        until = performance.now() + 12;
      }
      if (match[i] !== 2) continue;
      const shape = kinds.shape[kind[i]], tests = (ofShape[shape] ??= await shapeTests(shape, texts)), rank = rankOf(i);
      let mask = byKind[kind[i]] | byRow[track.row];
      for (let n = 0; n < tests.length; n++)
        if (!(mask & (1 << n)) && tests[n].some((test) => test(rank, i))) mask |= 1 << n;
      match[i] = mask === bits ? 1 : 0;
    }
  return own === searches;
}

function publish(match, progress, done) {
  const before = new Float64Array(spans.count + 1);
  let found = 0;
  for (let i = 0; i < spans.count; i++) {
    const is = match[i] === 1;
    found += is;
    before[i + 1] = before[i] + (is ? Math.max(spans.length[i], 1) : 0);
  }
  query = { match, before, found, done };
  progress(done);
}
const matches = (i) => query !== null && query.match[i] === 1;
