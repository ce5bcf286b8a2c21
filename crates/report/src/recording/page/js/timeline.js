// The timeline: what is seen of it, and what keys and the pointer do.

const timeline = (() => {
  const canvas = $("canvas"), overview = $("overview"), box = $("lanes"), tip = $("tip");
  // Heights in CSS pixels.
  const AXIS = 22, GROUP = 22, LEAST_ROW = 17, MOST_ROW = 30, CURVE = 44, GAP = 4, OVERVIEW = 36;
  // Least time in the view, in ns.
  const LEAST = 50;
  let [from, to] = [0, Math.max(DATA.length, LEAST)], selected = null, marked = null, width = 100, tall = 100, margin = 0, rowHeight = LEAST_ROW, height = AXIS;
  const all = to;
  let shownRows = [], image = null, scheduled = 0, busy = null;
  const idle = () => (spans.count ? "Click a span, or press n. All keys: ?" : "There are no calls.");

  const isHidden = (row) => !row.group.open;
  const depthsOf = (row) => row.tracks.length + (row.bins ? 1 : 0);
  function layout() {
    const depths = groups.reduce((sum, group) => sum + (group.open ? group.rows.reduce((sum, row) => sum + depthsOf(row), 0) : 0), 0);
    const others = groups.reduce((sum, group) => sum + GROUP + (group.open ? group.rows.reduce((sum, row) => sum + GAP + (row.points ? CURVE : 0), 0) : 0), AXIS);
    // Rows grow where there is room.
    rowHeight = Math.floor(Math.min(Math.max((tall - others) / Math.max(depths, 1), LEAST_ROW), MOST_ROW));
    height = AXIS;
    shownRows = [];
    for (const group of groups) {
      group.y = height;
      height += GROUP;
      if (!group.open) continue;
      for (const row of group.rows) {
        row.y = height;
        row.height = (row.points ? CURVE : depthsOf(row) * rowHeight) + GAP;
        height += row.height;
        shownRows.push(row);
      }
    }
    $("rows").style.height = Math.max(height, tall) + "px";
  }

  function resize() {
    const ratio = window.devicePixelRatio || 1;
    width = box.clientWidth || 800;
    // The canvas is the visible part of the rows: browsers have none that is as tall as thousands of them.
    tall = Math.max(box.clientHeight, 120);
    margin = Math.round(Math.min(220, width * 0.25));
    layout();
    // A scroll bar may have appeared.
    width = box.clientWidth || 800;
    for (const [target, high] of [[canvas, tall], [overview, OVERVIEW]]) {
      target.width = Math.round((target === overview ? overview.clientWidth || width : width) * ratio);
      target.height = Math.round(high * ratio);
      target.style.height = high + "px";
      target.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
    }
    image = null;
    busy = null;
    draw();
  }

  const x = (t) => margin + ((t - from) / (to - from)) * (width - margin);
  const trackTop = (track) => rows[track.row].y + track.depth * rowHeight;

  function draw() {
    if (scheduled) return;
    scheduled = requestAnimationFrame(paint);
  }

  // Draws now.
  function paint() {
    cancelAnimationFrame(scheduled);
    scheduled = 0;
    const g = canvas.getContext("2d"), ratio = canvas.width / width;
    if (!image || image.width !== canvas.width || image.height !== canvas.height) image = new ImageData(canvas.width, canvas.height);
    const left = Math.round(margin * ratio), scroll = box.scrollTop;
    const frame = { pixels: new Uint32Array(image.data.buffer), width: canvas.width, height: canvas.height, ratio, left, top: Math.round(AXIS * ratio), from, scale: (canvas.width - left) / (to - from) };
    frame.pixels.fill(theme.pixels.back);
    const ticks = axisTicks();
    for (const t of ticks.times) fillColumn(frame, Math.round(x(t) * ratio), frame.top, frame.height, theme.pixels.line);
    const boxes = [], look = spanLook(boxes), y = (at) => Math.round((at - scroll) * ratio);
    const isSeen = (top, high) => top + high > scroll + AXIS && top < scroll + tall;
    for (const group of groups) if (isSeen(group.y, GROUP)) paintGroup(frame, group, y);
    const first = firstWith(0, shownRows.length, (at) => shownRows[at].y + shownRows[at].height > scroll + AXIS);
    let end = first;
    for (; end < shownRows.length && shownRows[end].y < scroll + tall; end++) {
      const row = shownRows[end];
      if (row.points) paintCurve(frame, row.points, y(row.y) + 2, y(row.y + CURVE));
      for (const track of row.tracks) {
        const top = trackTop(track);
        if (!isSeen(top, rowHeight)) continue;
        paintIntervals(frame, spans, track.first, track.end, y(top), y(top + rowHeight) - Math.ceil(2 * ratio), look);
        paintFailures(frame, track, y(top), y(top + rowHeight) - Math.ceil(2 * ratio));
      }
      if (row.bins) paintBins(frame, row.bins, y(row.y + row.tracks.length * rowHeight), y(row.y + depthsOf(row) * rowHeight) - Math.ceil(2 * ratio));
    }
    g.putImageData(image, 0, 0);
    g.font = "12px system-ui, sans-serif";
    drawAxis(g, ticks);
    g.save();
    g.beginPath(); g.rect(0, AXIS, width, tall - AXIS); g.clip();
    drawNames(g, shownRows.slice(first, end), scroll);
    drawTexts(g, boxes, ratio);
    g.beginPath(); g.rect(margin, AXIS, width - margin, tall - AXIS); g.clip();
    drawSelection(g, scroll);
    g.restore();
    if (marked) {
      const [a, b] = [Math.max(x(marked[0]), margin), Math.max(x(marked[1]), margin)];
      g.fillStyle = theme.mark;
      g.globalAlpha = 0.35;
      g.fillRect(a, 0, Math.max(b - a, 1), tall);
      g.globalAlpha = 1;
    }
    drawOverview();
    remember();
  }

  // A device has its use in its own line, which is seen if its streams are hidden.
  function paintGroup(frame, group, y) {
    const [top, bottom] = [y(group.y), y(group.y + GROUP - 2)];
    fillPixels({ ...frame, left: 0 }, 0, frame.width, top, bottom, theme.pixels.panel);
    if (group.kind !== "device") return;
    paintBins(frame, group.bins, top + Math.ceil(3 * frame.ratio), bottom - Math.ceil(frame.ratio));
    for (const [series, color] of [[group.copies, theme.strong[COPY]], [group.kernels, theme.strong[KERNEL]]])
      paintIntervals(frame, series, series.first, series.end, top + Math.ceil(3 * frame.ratio), bottom - Math.ceil(frame.ratio), plainLook(color));
  }

  // Times of the axis, and the time between them.
  function axisTicks() {
    const wanted = (to - from) / Math.max((width - margin) / 120, 1), times = [];
    const step = [1, 2, 5, 10].map((n) => n * 10 ** Math.floor(Math.log10(wanted))).find((n) => n >= wanted);
    for (let t = Math.ceil(from / step) * step; t <= to; t += step) times.push(t);
    return { times, step };
  }
  function drawAxis(g, { times, step }) {
    g.fillStyle = theme.soft;
    g.strokeStyle = theme.line;
    for (const t of times) {
      const at = Math.round(x(t)) + 0.5, text = moment(t, step);
      g.beginPath(); g.moveTo(at, AXIS - 6); g.lineTo(at, AXIS); g.stroke();
      if (at + 3 + widthOf(g, text) <= width) g.fillText(text, at + 3, 12);
    }
    g.fillText(`${time(to - from)} in view`, 6, 12);
  }

  function drawNames(g, list, scroll) {
    for (const group of groups) {
      const y = group.y - scroll;
      if (y + GROUP < AXIS || y > tall) continue;
      g.fillStyle = theme.front;
      g.font = "600 12px system-ui, sans-serif";
      const rest = group.open ? "" : ` (${many(group.rows.filter((row) => row.kind !== "n").length, group.unit)})`;
      g.fillText(fitted(g, `${group.open ? "▾" : "▸"} ${group.title}${rest}`, group.kind === "device" ? margin - 8 : width - 8), 4, y + 15);
      g.font = "12px system-ui, sans-serif";
    }
    g.strokeStyle = theme.line;
    for (const row of list) {
      const y = row.y - scroll;
      g.fillStyle = row.kind === "n" ? theme.accent : theme.soft;
      g.fillText(fitted(g, row.label, margin - 22), 16, y + 13);
      if (row.points) g.fillText(fitted(g, `at most ${row.words(row.points.most)}`, margin - 22), 16, y + 28);
      if (row.bins) g.fillText(fitted(g, "further spans, as density", margin - 22), 16, y + row.tracks.length * rowHeight + (row.tracks.length ? 13 : 26));
      g.beginPath(); g.moveTo(0, y + row.height - 1.5); g.lineTo(width, y + row.height - 1.5); g.stroke();
    }
    g.beginPath(); g.moveTo(margin - 0.5, AXIS); g.lineTo(margin - 0.5, tall); g.stroke();
  }

  function drawTexts(g, boxes, ratio) {
    for (let at = 0; at < boxes.length; at += 4) {
      const left = boxes[at + 1] / ratio, room = boxes[at + 2] / ratio - left - 6;
      if (room < 22) continue;
      const i = boxes[at], dim = query && !matches(i);
      g.fillStyle = dim ? theme.soft : isFailed(i) ? "#fff" : INKS[classOf(i)];
      const full = labelOf(i), text = widthOf(g, full) <= room ? full : fitted(g, shortName(full), room);
      if (text) g.fillText(text, left + 3, boxes[at + 3] / ratio + rowHeight / 2 + 3);
    }
  }

  function drawSelection(g, scroll) {
    if (selected === null || isHidden(rowOf(selected))) return drawArrows(g, scroll);
    const left = x(spans.start[selected]), wide = Math.max(x(endOf(selected)) - left, 2);
    g.strokeStyle = theme.front;
    g.lineWidth = 2;
    g.strokeRect(left, trackTop(trackOf(selected)) - scroll, wide, rowHeight - 2);
    g.lineWidth = 1;
    drawArrows(g, scroll);
  }

  // Arrows from the selected launch to its work, or from the launch of the selected work.
  function drawArrows(g, scroll) {
    if (selected === null) return;
    g.strokeStyle = g.fillStyle = theme.front;
    const place = (i) => trackTop(trackOf(i)) + rowHeight / 2 - 1 - scroll;
    // A graph has more work than arrows could show.
    for (const other of partnersOf(selected).slice(0, 200)) {
      const [call, work] = launchOf(selected) !== null ? [other, selected] : [selected, other];
      if (isHidden(rowOf(call)) || isHidden(rowOf(work))) continue;
      const [left, top, right, bottom] = [x(spans.start[call]), place(call), x(spans.start[work]), place(work)];
      g.beginPath(); g.moveTo(left, top);
      g.bezierCurveTo((left + right) / 2, top, (left + right) / 2, bottom, right, bottom);
      g.stroke();
      g.beginPath(); g.moveTo(right, bottom); g.lineTo(right - 7, bottom - 4); g.lineTo(right - 7, bottom + 4); g.fill();
    }
  }

  // The whole recording: use of the devices, or without them, calls of all threads.
  function drawOverview() {
    const g = overview.getContext("2d"), wide = overview.clientWidth || width;
    if (!busy || busy.length !== wide) busy = overviewBusy(wide);
    const most = Math.max(...busy, 1e-9);
    g.fillStyle = theme.panel;
    g.fillRect(0, 0, wide, OVERVIEW);
    g.fillStyle = theme.accent;
    busy.forEach((n, at) => { if (n > 0) { const high = Math.max((n / most) * (OVERVIEW - 4), 1); g.fillRect(at, OVERVIEW - high, 1, high); } });
    g.fillStyle = "rgba(128,128,128,.35)";
    const [a, b] = [(from / all) * wide, (to / all) * wide];
    g.fillRect(0, 0, a, OVERVIEW);
    g.fillRect(b, 0, wide - b, OVERVIEW);
  }
  function overviewBusy(wide) {
    const sums = new Float64Array(wide), slice = all / wide, devices = groups.filter((group) => group.kind === "device");
    const list = devices.length ? devices.flatMap((group) => [group.kernels, group.copies]) : spans.tracks.filter((track) => track.depth === 0).map((track) => new Series(spans.start, spans.length, spans.before, track.first, track.end));
    for (const series of list) {
      if (series.end - series.first > wide) {
        for (let at = 0, last = 0; at < wide; at++) { const until = series.busyUntil((at + 1) * slice); sums[at] += until - last; last = until; }
        continue;
      }
      for (let i = series.first; i < series.end; i++) {
        const [a, b] = [series.start[i] / slice, (series.start[i] + series.length[i]) / slice];
        for (let at = Math.floor(a); at <= Math.min(Math.floor(b), wide - 1); at++) sums[at] += Math.max(Math.min(b, at + 1) - Math.max(a, at), 0.001) * slice;
      }
    }
    const bins = devices.length ? devices.flatMap((group) => group.bins) : rows.flatMap((row) => row.bins ?? []);
    for (const { start, end, share } of bins) {
      const [a, b] = [start / slice, end / slice];
      for (let at = Math.max(Math.floor(a), 0); at <= Math.min(Math.floor(b), wide - 1); at++) sums[at] += Math.max(Math.min(b, at + 1) - Math.max(a, at), 0) * share * slice;
    }
    return sums;
  }

  // `follows`: another page has moved, and this one with it.
  function look(a, b, follows = false) {
    const length = Math.min(Math.max(b - a, LEAST), all), middle = (a + b) / 2;
    from = Math.min(Math.max(middle - length / 2, 0), all - length);
    to = from + length;
    if (!follows && isFramed) parent.postMessage([from, to], "*");
    draw();
  }
  // The selected span where it is seen.
  function middle() {
    const at = selected === null ? -1 : spans.start[selected] + spans.length[selected] / 2;
    return at >= from && at <= to ? at : (from + to) / 2;
  }
  const zoom = (factor, at = middle()) => look(at - (at - from) * factor, at + (to - at) * factor);
  const move = (part) => look(from + (to - from) * part, to + (to - from) * part);

  const status = (text) => $("status").textContent = text;

  function select(i, follow) {
    selected = i;
    marked = null;
    status("");
    const details = $("details");
    if (i === null) { details.replaceChildren(element("em", idle())); return draw(); }
    const name = element("b", nameOf(i)), words = element("span", "…");
    if (isFailed(i)) name.className = "failed";
    const where = ` took ${time(spans.length[i])} at ${moment(spans.start[i], 1e3)} in ${placeOf(rowOf(i))} (${DATA.classes[classOf(i)]})`;
    details.replaceChildren(name, hasLabel(i) ? ` ${labelOf(i)}` : "", where, element("br"), words);
    detailsOf(i).then((text) => { if (selected === i) words.textContent = text; });
    const list = partnersOf(i);
    if (list.length) {
      const other = list[0], delay = Math.abs(spans.start[other] - spans.start[i]);
      const more = list.length > 1 ? `, the first of ${count(list.length)}` : "";
      const text = launchOf(i) !== null ? `launched ${time(delay)} before` : `ran ${time(delay)} later, for ${time(spans.length[other])}${more}`;
      const button = element("button", text, { title: "Show it (g)" });
      button.onclick = () => select(other, true);
      details.append(" ", button);
    }
    if (follow) reveal(i);
    if (follow && (spans.start[i] < from || endOf(i) > to)) {
      const length = Math.max(to - from, spans.length[i] * 1.5), middle = spans.start[i] + spans.length[i] / 2;
      look(middle - length / 2, middle + length / 2);
    } else draw();
  }

  // Scrolls to the track of a span.
  function reveal(i) {
    const row = rowOf(i);
    if (isHidden(row)) {
      row.group.open = true;
      layout();
    }
    const top = trackTop(trackOf(i));
    if (top < box.scrollTop + AXIS || top + rowHeight > box.scrollTop + tall) box.scrollTop = Math.max(row.y - AXIS - GROUP, 0);
  }

  // Calls in a call, on the tracks below: a call of the runtime has the driver's launch in it.
  function* callsWithin(i) {
    const track = trackOf(i);
    if (isWork(i)) return;
    for (const inner of rows[track.row].tracks.filter((inner) => inner.depth > track.depth))
      for (let at = firstWith(inner.first, inner.end, (at) => spans.start[at] >= spans.start[i]), tries = 0; at < inner.end && spans.start[at] < endOf(i) && tries < 1000; at++, tries++) yield at;
  }

  // From a launch to its work and back. The status says why a span has none.
  const LAUNCH = DATA.classes.indexOf("launch");
  function cross() {
    if (selected === null) return status("Select a launch or work of a GPU first: click it, or press n.");
    if (!launched) return status("The launches are still being read.");
    const call = [selected, ...callsWithin(selected)].find((i) => partnersOf(i).length);
    if (call !== undefined) return select(partnersOf(call)[0], true);
    const noStreams = !rows.some((row) => row.kind === "s");
    if (rowOf(selected).kind === "i") status("No kernel ran in this time.");
    else if (isWork(selected)) status("The call that launched this work is not in the recording.");
    else if (noStreams) status("The recording has no work of a GPU: `record --gpu` records it.");
    else if (classOf(selected) === LAUNCH || classOf(selected) === COPY)
      status(isFailed(selected) ? "This call failed, and launched no work." : "No work on the GPU belongs to this call: a launch into a stream that is captured only adds to a graph; or the record of the work was lost.");
    else status("This call launches no work on the GPU.");
  }

  // The call around the selected one, or the first in it.
  function nest(direction) {
    if (selected === null) return step(1);
    const track = trackOf(selected), { start } = spans, other = rows[track.row].tracks.find((other) => other.depth === track.depth + direction);
    if (!other) return;
    if (direction > 0) {
      const i = firstWith(other.first, other.end, (at) => start[at] >= start[selected]);
      if (i < other.end && start[i] < endOf(selected)) select(i, true);
    } else {
      const i = firstWith(other.first, other.end, (at) => start[at] > start[selected]) - 1;
      if (i >= other.first) select(i, true);
    }
  }

  // From a table: all spans with this in their name or text, and the first of them.
  async function find(text) {
    show("timeline");
    $("search").value = text;
    selected = null;
    look(0, all);
    canvas.focus();
    await startSearch(text);
    step(1);
  }

  // Spans in the order of their starts; of one start the outer one first.
  const comesBefore = (a, b) => spans.start[a] - spans.start[b] || trackOf(a).depth - trackOf(b).depth || a - b;
  function neighbour(tracks, direction, passes) {
    let best = null;
    for (const track of tracks) {
      let i;
      if (selected === null) i = direction > 0 ? firstWith(track.first, track.end, (at) => spans.start[at] >= from) : track.end - 1;
      else {
        i = firstWith(track.first, track.end, (at) => comesBefore(at, selected) >= 0);
        if (direction < 0) i--;
        else if (i === selected) i++;
      }
      while (i >= track.first && i < track.end && !passes(i)) i += direction;
      if (i < track.first || i >= track.end) continue;
      if (best === null || comesBefore(i, best) * direction < 0) best = i;
    }
    return best;
  }
  function step(direction) {
    const row = selected === null ? shownRows.find((row) => row.tracks.length && row.y + row.height > box.scrollTop + AXIS) ?? rows.find((row) => row.tracks.length) : rowOf(selected);
    if (!row) return;
    const tracks = query ? spans.tracks : row.tracks, passes = query ? matches : () => true;
    let next = neighbour(tracks, direction, passes);
    if (next === null) {
      // After the last one is the first.
      const was = [selected, from];
      [selected, from] = [null, 0];
      next = neighbour(tracks, direction, passes);
      [selected, from] = was;
    }
    if (next !== null) select(next, true);
  }

  function startSearch(text) {
    return search(text, () => {
      $("found").textContent = query ? `${count(query.found)} found${query.done ? "" : " …"}` : "";
      draw();
    });
  }

  const timeAt = (event) => from + ((event.clientX - canvas.getBoundingClientRect().left - margin) / (width - margin)) * (to - from);
  const heightAt = (event) => event.clientY - canvas.getBoundingClientRect().top;
  function rowAt(event) {
    const y = heightAt(event);
    return y < AXIS ? undefined : shownRows.find((row) => y + box.scrollTop >= row.y && y + box.scrollTop < row.y + row.height);
  }
  function groupAt(event) {
    const y = heightAt(event);
    return y < AXIS ? undefined : groups.find((group) => y + box.scrollTop >= group.y && y + box.scrollTop < group.y + GROUP);
  }
  const isInMargin = (event) => event.clientX - canvas.getBoundingClientRect().left < margin;
  // The span at the pointer; of several in a pixel the longest.
  function hit(event) {
    const row = rowAt(event);
    if (!row || isInMargin(event)) return null;
    const track = row.tracks.find((track) => track.depth === Math.floor((heightAt(event) + box.scrollTop - row.y) / rowHeight));
    if (!track) return null;
    const t = timeAt(event), slack = ((to - from) / (width - margin)) * 2;
    let best = null;
    for (let i = firstWith(track.first, track.end, (at) => endOf(at) >= t - slack), tries = 0; i < track.end && spans.start[i] <= t + slack && tries < 10000; i++, tries++) {
      if (spans.start[i] <= t && endOf(i) >= t) return i;
      if (best === null || spans.length[i] > spans.length[best]) best = i;
    }
    return best;
  }

  // A marked part of the time: its tables.
  function markArea(a, b) {
    marked = [Math.max(a, 0), Math.min(b, all)];
    selected = null;
    status("");
    const zoomIn = element("button", "Zoom to it ( f )"), holder = element("div", null, { class: "area" });
    zoomIn.onclick = () => look(...marked);
    $("details").replaceChildren(element("b", time(marked[1] - marked[0])), ` from ${moment(marked[0], 1e3)} to ${moment(marked[1], 1e3)} `, zoomIn, holder);
    rangeTables(holder, ...marked);
    resize();
  }

  function hover(event) {
    const i = hit(event), row = rowAt(event), group = groupAt(event);
    const text = i === null ? hoverText(event, row, group) : null;
    tip.hidden = i === null && !text;
    canvas.style.cursor = i !== null || group ? "pointer" : "";
    if (tip.hidden) return;
    if (text) tip.replaceChildren(text);
    else {
      const name = element("b", labelOf(i)), words = element("span", "");
      if (isFailed(i)) name.className = "failed";
      tip.replaceChildren(name, ` ${time(spans.length[i])}`, element("br"), hasLabel(i) ? nameOf(i) + " " : "", words);
      detailsOf(i).then((text) => (words.textContent = text.length > 160 ? text.slice(0, 160) + "…" : text));
    }
    tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8) + "px";
    tip.style.top = Math.min(event.clientY + 16, innerHeight - tip.offsetHeight - 8) + "px";
  }
  function hoverText(event, row, group) {
    const t = timeAt(event);
    if (group?.kind === "device") {
      const slack = (to - from) / (width - margin), [a, b] = isInMargin(event) ? [from, to] : [t - slack * 10, t + slack * 10];
      const more = group.bins.some((bin) => bin.end > a && bin.start < b) ? "; without the spans that the page has as density" : "";
      return `${group.title}: kernels ran for ${percent(group.kernels.busy(a, b), b - a)}, any work for ${percent(group.work().busy(a, b), b - a)} of ${time(b - a)}${more}`;
    }
    if (!row) return null;
    if (isInMargin(event)) {
      const held = row.tracks.reduce((sum, track) => sum + track.end - track.first, 0);
      return row.points ? row.label : `${placeOf(row)}: ${many(held, "span")}`;
    }
    if (row.points) {
      const at = firstWith(0, row.points.times.length, (at) => row.points.times[at] > t) - 1;
      return `${row.label}: ${row.words(at < 0 ? 0 : row.points.values[at])} at ${moment(t, 1e3)}`;
    }
    const bin = row.bins?.[firstWith(0, row.bins.length, (at) => row.bins[at].end > t)];
    return bin && bin.start <= t ? `${many(bin.spans, "span")} in ${time(bin.end - bin.start)}, busy for ${percent(bin.share, 1)}; the page has no more of them` : null;
  }

  let grip = null;
  canvas.onpointerleave = () => (tip.hidden = true);
  canvas.onpointerdown = (event) => { tip.hidden = true; grip = { x: event.clientX, at: timeAt(event), from, to, moved: false, mark: event.shiftKey }; canvas.setPointerCapture(event.pointerId); };
  canvas.onpointermove = (event) => {
    if (!grip) return hover(event);
    const by = event.clientX - grip.x;
    grip.moved ||= Math.abs(by) > 3;
    if (!grip.moved) return;
    if (grip.mark) {
      marked = [grip.at, timeAt(event)].sort((a, b) => a - b);
      return draw();
    }
    const part = (by / (width - margin)) * (grip.to - grip.from);
    look(grip.from - part, grip.to - part);
  };
  canvas.onpointerup = (event) => {
    const group = grip && !grip.moved ? groupAt(event) : null;
    if (grip && grip.moved && grip.mark) markArea(...[grip.at, timeAt(event)].sort((a, b) => a - b));
    else if (group) {
      group.open = !group.open;
      resize();
    } else if (grip && !grip.moved) {
      const had = marked;
      select(hit(event), false);
      if (had) resize();
    }
    grip = null;
  };
  canvas.ondblclick = (event) => { const i = hit(event); if (i !== null) { select(i, false); fill(); } };
  canvas.addEventListener("wheel", (event) => {
    if (event.altKey) return;
    event.preventDefault();
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) return move(event.deltaX / width);
    zoom(event.deltaY > 0 ? 1.25 : 0.8, timeAt(event));
  }, { passive: false });
  box.onscroll = draw;
  // The details below take more or less of the window.
  new ResizeObserver(() => requestAnimationFrame(() => { if (box.clientHeight && box.clientHeight !== tall) resize(); })).observe(box);
  overview.onpointerdown = (event) => { overview.setPointerCapture(event.pointerId); overview.onpointermove(event); };
  overview.onpointermove = (event) => {
    if (!event.buttons) return;
    const box = overview.getBoundingClientRect(), at = ((event.clientX - box.left) / box.width) * all, half = (to - from) / 2;
    look(at - half, at + half);
  };
  $("zoom-in").onclick = () => zoom(0.5);
  $("zoom-out").onclick = () => zoom(2);
  $("zoom-all").onclick = () => look(0, all);
  $("search").oninput = (event) => startSearch(event.target.value);

  const fill = () => (marked ? look(...marked) : selected !== null && look(spans.start[selected] - spans.length[selected] * 0.1, spans.start[selected] + spans.length[selected] * 1.1));
  const scroll = (pages) => box.scrollBy(0, pages * (tall - AXIS - rowHeight));
  // Nothing is selected and nothing searched.
  function clear() {
    $("search").value = "";
    startSearch("");
    select(null);
    resize();
  }
  // The details of a span that was selected by the address, when more of the page is read.
  const reselect = () => selected !== null && select(selected, false);
  return { resize, paint, reselect, look, zoom, move, scroll, step, nest, cross, find, fill, clear, select, markArea, search: startSearch, choose: (i) => i < spans.count && select(i, true), all: () => look(0, all), view: () => [from, to], selected: () => selected };
})();
