// Tables, and the views of functions, kernels, memory and errors.

// A table whose columns sort. A cell is a text, a number, an element, or an object with `text` and `sort`.
function table(place, heads, list, empty, all = list.length) {
  if (!list.length) return place.append(element("p", empty));
  const made = element("table"), body = element("tbody"), top = element("tr");
  // Texts and pictures begin where their column does, numbers end there.
  const left = list[0].map((cell) => cell instanceof Node || typeof cell === "string");
  const value = (cell) => (cell && typeof cell === "object" && "sort" in cell ? cell.sort : cell);
  const fill = () => {
    body.replaceChildren(...list.map((row) => {
      const tr = element("tr");
      row.forEach((cell, at) => {
        const td = element("td");
        td.classList.toggle("left", left[at]);
        if (cell instanceof Node) td.append(cell);
        else if (cell && typeof cell === "object") td.append(cell.text, ...(cell.more ? [cell.more()] : []));
        else td.textContent = typeof cell === "number" ? count(cell) : cell;
        tr.append(td);
      });
      return tr;
    }));
  };
  heads.forEach((text, at) => {
    const th = element("th"), button = element("button", text);
    button.onclick = () => {
      const down = th.getAttribute("aria-sort") !== "descending";
      top.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
      th.setAttribute("aria-sort", down ? "descending" : "ascending");
      const sign = down ? -1 : 1;
      list.sort((a, b) => (value(a[at]) < value(b[at]) ? -sign : value(a[at]) > value(b[at]) ? sign : 0));
      fill();
    };
    th.classList.toggle("left", left[at]);
    th.append(button);
    top.append(th);
  });
  const thead = element("thead");
  thead.append(top);
  made.append(thead, body);
  fill();
  place.append(made);
  if (all > list.length) place.append(element("p", `The ${count(list.length)} with the most time of ${count(all)}.`));
}

// Counts by power of two of the nanoseconds. All of a table begin and end at the same powers, so that they compare.
function histogram(buckets, first, end) {
  const width = 4, height = 22, most = Math.max(...buckets, 1), shown = buckets.slice(first);
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("width", (end - first) * width);
  svg.setAttribute("height", height);
  svg.setAttribute("role", "img");
  const least = Math.max(buckets.findIndex((n) => n > 0), 0);
  svg.setAttribute("aria-label", `durations from ${time(2 ** least)} to ${time(2 ** buckets.length)}`);
  shown.forEach((n, at) => {
    const bar = document.createElementNS(svg.namespaceURI, "rect");
    const tall = n ? Math.max(1, Math.round((n / most) * height)) : 0;
    for (const [key, value] of [["x", at * width], ["y", height - tall], ["width", width - 1], ["height", tall]]) bar.setAttribute(key, value);
    const title = document.createElementNS(svg.namespaceURI, "title");
    title.textContent = `${time(2 ** (first + at))} to ${time(2 ** (first + at + 1))}: ${count(n)}`;
    bar.append(title);
    svg.append(bar);
  });
  return svg;
}

// A name that leads to its spans in the timeline.
function link(name, text = name, sort = name) {
  const made = element("button", name, { class: "link", title: "Show in the timeline" });
  made.onclick = () => timeline.find(text);
  made.sort = sort;
  return made;
}

const nsCell = (ns) => ({ text: time(ns), sort: ns });
function stats(place, what, list, all) {
  const sum = list.reduce((sum, row) => sum + row[3], 0) || 1;
  const first = Math.min(...list.map((row) => Math.max(row[8].findIndex((n) => n > 0), 0)));
  const end = Math.max(...list.map((row) => row[8].length));
  const failures = (name, n) => (n ? link(count(n), `failed "${name}"`, n) : n);
  const cells = list.map(([name, n, total, self, median, p99, longest, errors, buckets]) => [
    link(name, `"${name}"`), n, nsCell(total),
    { text: time(self), sort: self, more: () => element("span", null, { class: "share", style: `width:${Math.max(1, (60 * self) / sum)}px` }) },
    { text: percent(self, sum), sort: self },
    nsCell(total / n), nsCell(median), nsCell(p99), nsCell(longest), failures(name, errors), histogram(buckets, first, end),
  ]);
  const range = `durations (${time(2 ** first)} to ${time(2 ** end)})`;
  table($(place), [what, "calls", "total", "self", "self %", "mean", "median", "p99", "longest", "errors", range], cells, "There are none.", all);
}

// A curve over the whole time; of each pixel the largest value.
function curve(place, title, { times, values, most }, words) {
  const [width, height] = [1000, 240], length = Math.max(DATA.length, 1);
  const y = (n) => (height - (n / Math.max(most, 1)) * (height - 20)).toFixed(2);
  let path = `M0,${height}`, value = 0, next = 0;
  for (let x = 0; x <= width; x++) {
    let top = value;
    for (; next < times.length && times[next] < ((x + 1) / width) * length; next++) { top = Math.max(top, values[next]); value = values[next]; }
    path += `L${x},${y(top)}`;
  }
  path += `L${width},${height}Z`;
  const holder = element("div");
  holder.innerHTML = `<svg class="curve" viewBox="0 0 ${width} ${height}" preserveAspectRatio="none" role="img"><path d="${path}"/></svg>`;
  holder.firstChild.setAttribute("aria-label", `${title} over time, at most ${words(most)}`);
  const axis = element("div", null, { class: "axis", "aria-hidden": "true" });
  for (let at = 0; at <= 8; at++) axis.append(element("span", time((DATA.length * at) / 8)));
  place.append(element("h2", title), holder, axis);
}

function memory() {
  const place = $("memory"), bytes = (n) => ({ text: size(n), sort: n });
  table(place, ["kind of memory", "allocations", "bytes", "most at a time", "never freed"],
    DATA.kinds.map(([kind, n, all, peak, left]) => [kind, n, bytes(all), bytes(peak), bytes(left)]), "Nothing was allocated.");
  place.append(element("p", `${many(DATA.frees, "free")}; ${many(DATA.leaked, "block")} never freed.`));
  const curves = groups.find((group) => group.kind === "curves")?.rows ?? [];
  for (const row of curves.filter((row) => row.kind === "memory"))
    curve(place, `${row.name} memory over time, of processes that run (${size(row.points.most)} at the top)`, row.points, size);
  place.append(element("h2", "Copies"));
  table(place, ["direction", "copies", "bytes", "time in the calls"],
    DATA.copies.map(([way, n, bytes, ns]) => [way, n, { text: size(bytes), sort: bytes }, nsCell(ns)]), "There are none.");
}

function errors() {
  table($("errors"), ["function", "result", "times"], DATA.errors.map(([name, result, times]) => [link(name, `failed "${name}"`), link(result, `failed "${result}"`), link(count(times), `failed "${name}" "${result}"`, times)]), "No call failed.");
}
