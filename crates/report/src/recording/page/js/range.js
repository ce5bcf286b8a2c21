// Tables of a marked part of the time. Time on a GPU and time of the host are apart: each section has its own sum, and percentages are of
// that sum. A call's launch is host time, the kernel that it launched is time on the GPU.

// Spans by name, as far as they lie between two times: number, total and self time in ns, failures.
function spansWithin(list, from, to, key) {
  const found = new Map();
  for (const row of list) {
    let above = null;
    for (const track of row.tracks) {
      const { start, length } = spans, own = [];
      let around = 0;
      for (let i = firstWith(track.first, track.end, (at) => endOf(at) >= from); i < track.end && start[i] <= to; i++) {
        const ns = Math.min(start[i] + length[i], to) - Math.max(start[i], from);
        if (ns < 0) continue;
        const name = key(i);
        let sum = found.get(name);
        if (!sum) found.set(name, (sum = { example: i, count: 0, total: 0, self: 0, failed: 0 }));
        sum.count++;
        sum.total += ns;
        sum.self += ns;
        if (isFailed(i)) sum.failed++;
        own.push(i, sum);
        if (!above) continue;
        // The call around it is on the track above.
        while (around + 2 < above.length && start[above[around + 2]] <= start[i]) around += 2;
        if (above.length && start[above[around]] <= start[i] && start[i] < endOf(above[around])) above[around + 1].self -= ns;
      }
      above = row.kind === "s" ? null : own;
    }
  }
  return [...found.values()];
}

// Kernels and work of each device: busy and idle time, and the longest time without work. `isPart` if there are spans that the page has
// only as density: busy time is a lower bound then, and idle time an upper one.
function deviceUse(from, to) {
  return groups.filter((group) => group.kind === "device").map((group) => {
    const { title, kernels, bins } = group, work = group.work();
    let longest = 0, longestAt = from, last = from;
    const gap = (start) => { if (start - last > longest) [longest, longestAt] = [start - last, last]; };
    for (let i = Math.max(work.at(from), work.first); i < work.end && work.start[i] < to; i++) {
      const end = work.start[i] + work.length[i];
      if (end <= from) continue;
      gap(work.start[i]);
      last = Math.max(end, from);
    }
    gap(to);
    const busy = work.busy(from, to), isPart = bins.some((bin) => bin.end > from && bin.start < to);
    return { title, kernels: kernels.busy(from, to), busy, idle: to - from - busy, longest, longestAt, isPart };
  });
}

// Fills `place` with the tables.
function rangeTables(place, from, to) {
  const all = to - from || 1, share = (ns, sum) => ({ text: percent(ns, sum), sort: ns });
  const use = deviceUse(from, to);
  if (use.length) {
    place.append(element("h2", "Devices"));
    const gap = ({ longest, longestAt, isPart }) => {
      if (isPart) return "not known";
      const made = element("button", time(longest), { class: "link", title: "Show it" });
      made.onclick = () => timeline.look(longestAt - longest * 0.1, longestAt + longest * 1.1);
      made.sort = longest;
      return made;
    };
    const bound = (word, of, cell) => (of.isPart ? { ...cell, text: `${word} ${cell.text}` } : cell);
    table(place, ["device", "kernels ran", "kernels %", "any work", "work %", "idle", "idle %", "longest idle time"],
      use.map((of) => [of.title, ...[of.kernels, of.busy].flatMap((ns) => [bound("at least", of, nsCell(ns)), bound("at least", of, share(ns, all))]),
        bound("at most", of, nsCell(of.idle)), bound("at most", of, share(of.idle, all)), gap(of)]));
  }
  const streams = rows.filter((row) => row.kind === "s"), threads = rows.filter((row) => row.kind === "t"), ranges = rows.filter((row) => row.kind === "n");
  const work = spansWithin(streams, from, to, (i) => spans.kind[i]);
  const byTime = (key) => (a, b) => b[key] - a[key];
  const sections = [["Kernels on the GPU", "kernel", (of) => classOf(of.example) === KERNEL], ["Copies and fills on the GPU", "work", (of) => classOf(of.example) !== KERNEL]];
  for (const [title, what, test] of sections) {
    const list = joined(work.filter(test)).sort(byTime("total")), sum = list.reduce((sum, of) => sum + of.total, 0);
    if (!list.length) continue;
    place.append(element("h2", `${title}: ${time(sum)} of GPU time`));
    table(place, [what, "runs", "total", "GPU time %", "mean"],
      list.map((of) => [link(nameOf(of.example), `"${nameOf(of.example)}"`), of.count, nsCell(of.total), share(of.total, sum), nsCell(of.total / of.count)]));
  }
  for (const [title, list] of [["Calls of the host", threads], ["NVTX ranges", ranges]]) {
    const found = joined(spansWithin(list, from, to, (i) => spans.kind[i])).sort(byTime("self")), sum = found.reduce((sum, of) => sum + of.self, 0);
    if (!found.length) continue;
    place.append(element("h2", `${title}: ${time(sum)} of host time`));
    const name = (of) => link(nameOf(of.example), `"${nameOf(of.example)}"`);
    const kernel = (of) => (hasLabel(of.example) ? link(labelOf(of.example), `"${labelOf(of.example)}" "${nameOf(of.example)}"`) : "");
    const launches = found.some((of) => hasLabel(of.example));
    table(place, ["call", ...(launches ? ["launches"] : []), "calls", "total", "self", "host time %", "failed"],
      found.map((of) => [name(of), ...(launches ? [kernel(of)] : []), of.count, nsCell(of.total), nsCell(of.self), share(of.self, sum), of.failed]));
  }
  const rest = rows.reduce((sum, row) => sum + (row.bins ?? []).reduce((sum, bin) => sum + (bin.end > from && bin.start < to ? bin.spans : 0), 0), 0);
  if (rest) place.append(element("p", `${many(rest, "span")} more begin here, or in the bins at its edges: the page has them only as density, and these tables do not cover them.`));
  if (!place.childElementCount) place.append(element("p", "No call lies in it."));
}

// Sums of kinds with the same name and label.
function joined(list) {
  const found = new Map();
  for (const of of list) {
    const key = kinds.name[spans.kind[of.example]] * 2 ** 32 + kinds.label[spans.kind[of.example]], sum = found.get(key);
    if (!sum) found.set(key, of);
    else for (const number of ["count", "total", "self", "failed"]) sum[number] += of[number];
  }
  return [...found.values()];
}
