// Draws a topology's JSON graph as SVG: sub-topologies as groups, each laid out in layers from left to right.

const NODE = { width: 164, height: 42 };
const STORE = { height: 24, gap: 6 };
const GAP = { x: 46, y: 16 };
const GROUP = { pad: 18, title: 42, gap: 20 }; // the lag of a source stands between title and node
const SVG = "http://www.w3.org/2000/svg";

/** An SVG of the graph. `onTable(name)` is called for a chosen store; `application` is left out of internal topics' names. */
export function drawTopology(graph, { application, onTable }) {
  const writers = topicIndex(graph, "sink");
  const readers = topicIndex(graph, "source");
  const groups = graph.subtopologies.map((sub) => layout(sub));
  const width = Math.max(...groups.map((group) => group.width)) + 2 * GROUP.pad;
  let y = 1;
  const drawn = groups.map((group) => {
    const element = svg("g", { transform: `translate(1 ${y})` }, drawGroup(group, width, { application, writers, readers, onTable }));
    y += group.height + GROUP.title + GROUP.pad + GROUP.gap;
    return element;
  });
  const height = y - GROUP.gap + 1;
  const root = svg("svg", { width: width + 2, height, viewBox: `0 0 ${width + 2} ${height}`, role: "group", "aria-label": "Topology" });
  root.append(arrowHead(), ...drawn);
  root.style.width = "100%"; // shrinks to fit, but not so far that it cannot be read
  root.style.minWidth = `${Math.round(0.72 * width)}px`;
  root.style.maxWidth = `${width + 2}px`;
  return root;
}

/** Writes the lag of each source topic (a Map) onto the drawing. */
export function showLag(root, lags) {
  for (const badge of root.querySelectorAll("[data-topics]")) {
    const known = JSON.parse(badge.dataset.topics).map((topic) => lags.get(topic)).filter((lag) => lag != null);
    const lag = known.reduce((sum, each) => sum + each, 0);
    badge.textContent = lag > 0 ? `lag ${lag.toLocaleString("en")}` : "";
  }
}

/** `KSTREAM-AGGREGATE-0000000003` as `aggregate 3`; names that people gave stay as they are. */
export function shortName(name) {
  const generated = /^K(?:STREAM|TABLE)-(.+?)-0*(\d+)(.*)$/.exec(name);
  return generated ? `${generated[1].toLowerCase().replaceAll("-", " ")} ${generated[2]}${generated[3]}` : name;
}

// --- layout: layers by longest path, order by barycenter, then heights that follow the neighbours ---

function layout(sub) {
  const nodes = new Map(sub.nodes.map((node) => [node.name, { ...node, next: [], previous: [], layer: 0, stores: [...node.stores] }]));
  const owner = new Map();
  for (const node of nodes.values()) {
    node.shared = node.stores.filter((store) => owner.has(store));
    node.stores = node.stores.filter((store) => !owner.has(store));
    node.stores.forEach((store) => owner.set(store, node));
    node.successors.forEach((name) => link(node, nodes.get(name)));
  }
  assignLayers([...nodes.values()]);
  const edges = [...nodes.values()].flatMap((node) => node.next.map((to) => ({ from: node, to, via: [] })));
  const all = [...nodes.values()];
  edges.forEach((edge) => all.push(...bend(edge)));
  const layers = [];
  all.forEach((node) => (layers[node.layer] ??= []).push(node));
  orderLayers(layers);
  placeLayers(layers);
  const bottom = Math.max(...all.map((node) => node.y + blockHeight(node)));
  const width = layers.length * (NODE.width + GAP.x) - GAP.x;
  return { sub, nodes: [...nodes.values()], edges, owner, width, height: bottom };
}

function link(from, to) {
  from.next.push(to);
  to.previous.push(from);
}

function assignLayers(nodes) {
  const waiting = new Map(nodes.map((node) => [node, node.previous.length]));
  const ready = nodes.filter((node) => node.previous.length === 0);
  for (const node of ready) {
    for (const next of node.next) {
      next.layer = Math.max(next.layer, node.layer + 1);
      waiting.set(next, waiting.get(next) - 1);
      if (waiting.get(next) === 0) ready.push(next);
    }
  }
}

/** An edge over several layers gets a bend in each, so that it goes around the nodes between. */
function bend(edge) {
  edge.from.next.splice(edge.from.next.indexOf(edge.to), 1);
  edge.to.previous.splice(edge.to.previous.indexOf(edge.from), 1);
  let last = edge.from;
  for (let layer = edge.from.layer + 1; layer < edge.to.layer; layer += 1) {
    const point = { bend: true, layer, next: [], previous: [], stores: [] };
    link(last, point);
    edge.via.push(point);
    last = point;
  }
  link(last, edge.to);
  return edge.via;
}

function orderLayers(layers) {
  let best = null;
  const sortBy = (layer, side) => {
    const weight = new Map(layer.map((node) => [node, mean(node[side].map((other) => other.order)) ?? node.order]));
    layer.sort((a, b) => weight.get(a) - weight.get(b));
    layer.forEach((node, i) => (node.order = i));
  };
  const keepIfBetter = () => {
    const crossings = countCrossings(layers);
    if (best === null || crossings < best.crossings) best = { crossings, layers: layers.map((layer) => [...layer]) };
  };
  layers.forEach((layer) => layer.forEach((node, i) => (node.order = i)));
  keepIfBetter();
  for (let sweep = 0; sweep < 6; sweep += 1) {
    layers.forEach((layer) => sortBy(layer, "previous"));
    keepIfBetter();
    [...layers].reverse().forEach((layer) => sortBy(layer, "next"));
    keepIfBetter();
  }
  best.layers.forEach((layer, i) => (layers[i] = layer));
}

function countCrossings(layers) {
  let crossings = 0;
  for (const layer of layers) {
    const ends = layer.flatMap((node) => node.next.map((to) => [node.order, to.order]));
    ends.forEach(([a, b], i) => ends.slice(i + 1).forEach(([c, d]) => (crossings += (a - c) * (b - d) < 0 ? 1 : 0)));
  }
  return crossings;
}

function placeLayers(layers) {
  layers.forEach((layer, i) => layer.forEach((node) => (node.x = i * (NODE.width + GAP.x))));
  layers.forEach((layer) => stack(layer, layer.map(() => 0)));
  for (let sweep = 0; sweep < 4; sweep += 1) {
    const [order, side] = sweep % 2 ? [[...layers].reverse(), "next"] : [layers, "previous"];
    for (const layer of order) stack(layer, layer.map((node) => mean(node[side].map((other) => other.y)) ?? node.y));
  }
  const top = Math.min(...layers.flat().map((node) => node.y));
  layers.flat().forEach((node) => (node.y -= top));
}

/** Puts the nodes of a layer as near to where they want to be as their order and heights allow. */
function stack(layer, wanted) {
  const blocks = [];
  layer.forEach((node, i) => {
    let block = { nodes: [node], height: blockHeight(node) + GAP.y, want: wanted[i], weight: 1 };
    while (blocks.length && blocks.at(-1).want + blocks.at(-1).height > block.want) {
      const above = blocks.pop();
      const want = (above.want * above.weight + (block.want - above.height) * block.weight) / (above.weight + block.weight);
      block = { nodes: [...above.nodes, ...block.nodes], height: above.height + block.height, want, weight: above.weight + block.weight };
    }
    blocks.push(block);
  });
  for (const block of blocks) {
    let y = block.want;
    for (const node of block.nodes) {
      node.y = y;
      y += blockHeight(node) + GAP.y;
    }
  }
}

const blockHeight = (node) => (node.bend ? 4 : NODE.height + node.stores.length * (STORE.height + STORE.gap));
const mean = (numbers) => (numbers.length ? numbers.reduce((sum, each) => sum + each, 0) / numbers.length : null);

// --- drawing ---

function drawGroup(group, width, context) {
  const { sub, nodes, edges, owner } = group;
  const body = svg("g", { transform: `translate(${GROUP.pad} ${GROUP.title})` });
  const storeLine = (node, store) => {
    const target = owner.get(store);
    const y = target.y + NODE.height + (target.stores.indexOf(store) + 0.5) * (STORE.height + STORE.gap);
    const side = target.x < node.x ? NODE.width - 12 : 12;
    return svg("path", { class: "edge shared", d: `M ${node.x + NODE.width / 2} ${node.y + NODE.height} L ${target.x + side} ${y}` });
  };
  body.append(
    ...edges.map(drawEdge),
    ...nodes.flatMap((node) => node.shared.map((store) => storeLine(node, store))),
    ...nodes.map((node) => drawNode(node, context)),
  );
  const title = sub.is_global ? `Global table, whole in every worker` : `Sub-topology ${sub.id}`;
  const height = group.height + GROUP.title + GROUP.pad;
  return [
    svg("rect", { class: "group", width, height, rx: 12 }),
    svg("text", { class: "group-title", x: GROUP.pad, y: 20 }, title),
    body,
  ];
}

function drawEdge({ from, to, via }) {
  const points = [[from.x + NODE.width, from.y + NODE.height / 2]];
  for (const point of via) points.push([point.x, point.y + 2], [point.x + NODE.width, point.y + 2]);
  points.push([to.x - 3, to.y + NODE.height / 2]);
  return svg("path", { class: "edge", d: curve(points), "marker-end": "url(#arrow)" });
}

function curve(points) {
  const [[x0, y0], ...rest] = points;
  let [x, y] = [x0, y0];
  return rest.reduce((path, [nx, ny]) => {
    const bow = Math.max(12, Math.abs(nx - x) / 2);
    const step = y === ny ? ` L ${nx} ${ny}` : ` C ${x + bow} ${y} ${nx - bow} ${ny} ${nx} ${ny}`;
    [x, y] = [nx, ny];
    return path + step;
  }, `M ${x0} ${y0}`);
}

function drawNode(node, { application, writers, readers, onTable }) {
  const isTopic = node.kind !== "processor";
  const label = isTopic ? node.topics.join(", ") : shortName(node.name);
  const short = node.topics.map((topic) => shortTopic(topic, application)).join(", ");
  const elsewhere = node.kind === "sink" ? readers : writers;
  const linked = isTopic ? [...new Set(node.topics.flatMap((topic) => elsewhere.get(topic) ?? []))] : [];
  const topics = node.topics.length > 1 ? `${node.topics.length} topics` : "topic";
  const repartition = node.topics.some((topic) => topic.endsWith("-repartition")) ? "repartition " : `${topics} `;
  const detail = linked.length ? `${repartition}${node.kind === "sink" ? "to" : "from"} ${linked.join(", ")}` : isTopic ? topics : "";
  const parts = [
    svg("title", {}, isTopic ? `${label} (${node.name}): ${detail}` : node.name),
    svg("rect", { class: "box", width: NODE.width, height: NODE.height, rx: node.kind === "processor" ? 8 : 21 }),
    svg("text", { class: "label", x: NODE.width / 2, y: detail ? 19 : 26 }, fit(isTopic ? short : label, NODE.width - 24, 12.5)),
  ];
  if (detail) parts.push(svg("text", { class: "detail", x: NODE.width / 2, y: 33 }, fit(detail, NODE.width - 24, 10.5)));
  if (node.kind === "source") {
    parts.push(svg("text", { class: "badge", x: NODE.width - 8, y: -4, "data-topics": JSON.stringify(node.topics) }));
  }
  node.stores.forEach((store, i) => parts.push(drawStore(store, NODE.height + STORE.gap + i * (STORE.height + STORE.gap), onTable)));
  return svg("g", { class: `node ${node.kind}`, transform: `translate(${node.x} ${node.y})` }, parts);
}

function drawStore(store, y, onTable) {
  const element = svg("g", { class: "store", transform: `translate(12 ${y})`, tabindex: 0, role: "button", "aria-label": `Show table ${store}` }, [
    svg("title", {}, store),
    svg("rect", { class: "box", width: NODE.width - 24, height: STORE.height, rx: 4 }),
    svg("text", { class: "label", x: (NODE.width - 24) / 2, y: 16 }, fit(shortName(store), NODE.width - 40, 11.5)),
  ]);
  element.addEventListener("click", () => onTable(store));
  element.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    onTable(store);
  });
  return element;
}

function arrowHead() {
  const path = svg("path", { class: "arrow", d: "M 0 0 L 7 3.5 L 0 7 z" });
  const marker = svg("marker", { id: "arrow", markerWidth: 7, markerHeight: 7, refX: 5, refY: 3.5, orient: "auto", markerUnits: "userSpaceOnUse" }, [path]);
  return svg("defs", {}, [marker]);
}

function topicIndex(graph, kind) {
  const index = new Map();
  for (const sub of graph.subtopologies) {
    for (const node of sub.nodes.filter((each) => each.kind === kind)) {
      node.topics.forEach((topic) => index.set(topic, [...(index.get(topic) ?? []), sub.id]));
    }
  }
  return index;
}

/** `app-delays-repartition` as `delays`: what is left out stands below the name. */
function shortTopic(topic, application) {
  const internal = topic.startsWith(`${application}-`) && topic.endsWith("-repartition");
  return shortName(internal ? topic.slice(application.length + 1, -"-repartition".length) : topic);
}

const ruler = document.createElement("canvas").getContext("2d");

/** The text cut in its middle until it fits: the end of a long name tells more than its middle. */
function fit(text, width, size) {
  ruler.font = `600 ${size}px ${getComputedStyle(document.body).fontFamily}`;
  const most = Math.ceil(width); // a longer text fits in no case: a source may have hundreds of topics
  let shown = text.length > most ? "" : text;
  for (let cut = Math.min(text.length - 2, most); (shown === "" || ruler.measureText(shown).width > width) && cut > 4; cut -= 1) {
    shown = `${text.slice(0, Math.ceil(cut / 2))}…${text.slice(-Math.floor(cut / 2))}`;
  }
  return shown;
}

function svg(tag, attributes = {}, children = []) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...[children].flat());
  return element;
}
