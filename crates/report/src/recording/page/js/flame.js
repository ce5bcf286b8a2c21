// Flame graph of the stacks: the width of a frame is what weighs on it and on all below it.

const WEIGHTS = [["time of calls", time], ["time on the GPU", time], ["allocated memory", size]];
const stacks = { names: null, parent: [], frame: [], totals: [], below: [] };
// Height of a frame, and width below which frames are not drawn, in pixels.
const [FRAME, NARROW] = [18, 1];

async function loadStacks() {
  const { parent, frame, below } = stacks, { nodes } = DATA;
  stacks.names = await texts("frames", DATA.frames);
  stacks.totals = WEIGHTS.map((_, at) => Float64Array.from(nodes, (node) => node[2 + at]));
  nodes.forEach(([above, name], node) => {
    parent.push(above);
    frame.push(name);
    below.push([]);
    if (node) below[above].push(node);
  });
  // A node comes after its parent.
  for (const totals of stacks.totals) for (let node = nodes.length - 1; node > 0; node--) totals[parent[node]] += totals[node];
}

const frameName = (node) => stacks.names.get(stacks.frame[node]);
function pathTo(node) {
  const path = [node];
  while (path[0]) path.unshift(stacks.parent[path[0]]);
  return path;
}

function flameGraph() {
  const place = $("stacks");
  if (!DATA.nodes.length) return place.append(element("p", "No call has a stack: cudatrace record --stacks records those of launches, allocations and waits."));
  let weight = Math.max(stacks.totals.findIndex((totals) => totals[0] > 0), 0), top = 0, pattern = "";
  const bar = element("div", null, { class: "bar" }), graph = element("div", null, { id: "flames" });
  const find = element("input", null, { type: "search", placeholder: "part of a frame's name", "aria-label": "Mark frames" });
  const found = element("span", null, { "aria-live": "polite" });
  const shown = WEIGHTS.map(([name, words], at) => {
    const button = element("button", `${name}: ${words(stacks.totals[at][0])}`);
    button.disabled = !stacks.totals[at][0];
    button.onclick = () => {
      [weight, top] = [at, 0];
      draw();
    };
    return button;
  });
  find.oninput = () => {
    pattern = find.value.toLowerCase();
    draw();
  };
  bar.append(...shown, find, found);
  place.append(bar, graph);

  function draw() {
    shown.forEach((button, at) => button.setAttribute("aria-pressed", at === weight));
    const totals = stacks.totals[weight], path = pathTo(top), width = graph.clientWidth || 1000, made = [];
    let deepest = 0, marked = 0;
    const fitting = (node) => pattern !== "" && frameName(node).toLowerCase().includes(pattern);
    // The frames around the one on top have the whole width.
    path.slice(0, -1).forEach((node, depth) => made.push(box(node, depth, 0, width, true, fitting(node))));
    const open = [[top, path.length - 1, 0, path.slice(0, -1).some(fitting)]];
    if (open[0][3]) marked = totals[top];
    while (open.length) {
      const [node, depth, left, inside] = open.pop(), wide = (totals[node] / totals[top]) * width, fits = fitting(node);
      // A marked frame within a marked one counts once.
      if (fits && !inside) marked += totals[node];
      // Frames that are too narrow to be seen may have some below them that fit.
      if (!(wide >= NARROW)) {
        if (pattern !== "" && !inside && !fits) for (const next of stacks.below[node]) open.push([next, depth + 1, left, false]);
        continue;
      }
      made.push(box(node, depth, left, wide, false, fits));
      deepest = Math.max(deepest, depth);
      let at = left;
      for (const next of [...stacks.below[node]].sort((a, b) => totals[b] - totals[a])) {
        open.push([next, depth + 1, at, inside || fits]);
        at += (totals[next] / totals[top]) * width;
      }
    }
    graph.style.height = `${(deepest + 1) * FRAME}px`;
    graph.replaceChildren(...made);
    found.textContent = pattern ? `${percent(marked, totals[top])} in frames that fit` : "";
  }

  function box(node, depth, left, wide, isAround, fits = false) {
    const totals = stacks.totals[weight], [, words] = WEIGHTS[weight], name = frameName(node);
    const own = totals[node] - stacks.below[node].reduce((sum, next) => sum + totals[next], 0);
    const share = node ? `, ${percent(totals[node], totals[0])} of all` : "", self = own > 0 && own < totals[node] ? `, itself ${words(own)}` : "";
    const made = element("button", wide > 30 ? name : "", { title: `${name}: ${words(totals[node])}${share}${self}` });
    const color = [...name].reduce((sum, letter) => (sum * 31 + letter.codePointAt(0)) >>> 0, 7) % 5;
    made.className = `flame${color}${isAround ? " around" : ""}${fits ? " fits" : ""}`;
    made.style.cssText = `left:${left}px;width:${Math.max(wide - 1, 1)}px;top:${depth * FRAME}px`;
    made.onclick = () => {
      top = node;
      draw();
    };
    return made;
  }
  // Widths are known when the view is shown.
  new ResizeObserver(() => { if (graph.clientWidth) draw(); }).observe(place);
}
