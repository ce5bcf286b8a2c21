// Words, numbers with units, and elements.
"use strict";
const $ = (id) => document.getElementById(id);

function scaled(n, units) {
  const at = units.findIndex(([, one]) => n >= one);
  if (at < 0) return null;
  const tenths = Math.round((n * 10) / units[at][1]);
  // A number that rounds up to one of the next unit is written in that unit.
  const [unit, one] = at > 0 && tenths * units[at][1] >= 10 * units[at - 1][1] ? units[at - 1] : units[at];
  return (Math.round((n * 10) / one) / 10).toFixed(1) + " " + unit;
}
const time = (ns) => scaled(ns, [["s", 1e9], ["ms", 1e6], ["µs", 1e3]]) ?? Math.round(ns) + " ns";
const size = (n) => scaled(n, [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 1024]]) ?? n + " B";
const count = (n) => n.toLocaleString("en");
const many = (n, one) => `${count(n)} ${one}${n === 1 ? "" : /(s|x|ch|sh)$/.test(one) ? "es" : "s"}`;
const percent = (part, all) => `${((100 * part) / (all || 1)).toFixed(1)} %`;

// A time of the recording. All have one unit, with as many digits as times `step` ns apart need to differ.
const [CLOCK, CLOCK_NS] = [["s", 1e9], ["ms", 1e6], ["µs", 1e3]].find(([, ns]) => DATA.length >= ns) ?? ["ns", 1];
function moment(ns, step) {
  const digits = Math.min(Math.max(Math.ceil(Math.log10(CLOCK_NS / step) - 1e-9), 0), 9);
  return `${(ns / CLOCK_NS).toFixed(digits)} ${CLOCK}`;
}

function element(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  if (text !== undefined && text !== null) made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}
