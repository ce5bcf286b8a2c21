// Arguments of spans. Their columns are read when they are needed first: by the details of a span, or by a search.

const argumentColumns = new Map();
let argumentTexts = null, ranks = null;

// Position of each span among those with its fields.
function rankOf(i) {
  if (!ranks) {
    ranks = new Uint32Array(spans.count);
    const next = new Uint32Array(DATA.shapes.length);
    for (let at = 0; at < spans.count; at++) ranks[at] = next[kinds.shape[spans.kind[at]]]++;
    ranks.of = next;
  }
  return ranks[i];
}
const spansOfShape = (shape) => (rankOf(0), ranks.of[shape]);

function argumentColumn(shape, at) {
  const key = `a${shape}.${at}`;
  if (!argumentColumns.has(key)) argumentColumns.set(key, exact(key, spansOfShape(shape)));
  return argumentColumns.get(key);
}
async function argumentText(number) {
  argumentTexts ??= texts("values", DATA.values);
  return (await argumentTexts).get(number);
}

// Functions that return the values of a shape's fields as text, by position among the spans of the shape.
async function writers(shape) {
  await argumentText(0);
  const all = await argumentTexts;
  return Promise.all(DATA.shapes[shape].map(async ([name, type], at) => {
    if (type === "l") return { name, type, write: (_, i) => labelOf(i), number: (_, i) => kinds.label[spans.kind[i]] };
    const values = await argumentColumn(shape, at);
    const write = {
      t: (rank) => all.get(values[rank]),
      h: (rank) => "0x" + values[rank].toString(16),
      u: (rank) => String(values[rank]),
      s: (rank) => String(typeof values[rank] === "bigint" ? BigInt.asIntN(64, (values[rank] >> 1n) ^ -(values[rank] & 1n)) : unzigzag(values[rank])),
    }[type];
    return { name, type, write, number: (rank) => values[rank] };
  }));
}

// `CUDA_ERROR_OUT_OF_MEMORY bytes=4096`
async function detailsOf(i) {
  const result = names.get(kinds.result[spans.kind[i]]), rank = rankOf(i);
  const words = (await writers(kinds.shape[spans.kind[i]])).map(({ name, write }) => `${name}=${write(rank, i)}`);
  return (result ? [result, ...words] : words).join(" ");
}
