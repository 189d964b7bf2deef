// The page: asks /status each second, the tables now and then, and the chosen table for its newest entries.
// Everything that comes from the worker is set as text, never as markup.

import { drawTopology, shortName, showLag } from "./topology.js";

const STATUS_EVERY = 1_000;
const TABLES_EVERY = 10_000;
const TOPOLOGY_EVERY = 10_000; // a restart may bring another topology
const ENTRIES_EVERY = 2_000;
const LONGEST_PAUSE = 10_000; // one slow answer must not hold old figures on the page
const MAX_ROWS = 100;
const MAX_TEXT = 400; // characters of a key or value that are shown

const $ = (id) => document.getElementById(id);
const number = (n) => (n == null ? "–" : Math.round(n).toLocaleString("en"));
let chosen = null; // the table whose entries are shown: {name, key} with key null for the newest entries
let tables = [];
let lastAnswer = null;
let lastTopology = null;

// --- asking ---

/** The digits of an integer that JavaScript would round. They are a number again when they become JSON. */
const digits = (source) => Object.assign(new String(source), { toJSON: () => JSON.rawJSON(source) });

/** JSON of a path; integers that JavaScript would round stay as their digits. */
async function ask(path) {
  const response = await fetch(path, { headers: { Accept: "application/json" }, signal: AbortSignal.timeout(10_000) });
  const exact = (_, value, context) =>
    typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value) && context ? digits(context.source) : value;
  const body = JSON.parse(await response.text(), exact);
  if (!response.ok) throw Object.assign(new Error(body.error ?? response.statusText), { status: response.status });
  return body;
}

/** Runs a step again and again while the page can be seen; a slow answer makes the pauses longer, not the load. */
function every(pause, step) {
  let timer = null;
  let round = 0;
  const run = async () => {
    clearTimeout(timer);
    const mine = ++round; // a later call takes over from a step that is still under way
    if (document.hidden) return;
    const begun = performance.now();
    await step();
    const slow = Math.min(10 * (performance.now() - begun), LONGEST_PAUSE);
    if (mine === round) timer = setTimeout(run, Math.max(pause, slow));
  };
  document.addEventListener("visibilitychange", () => !document.hidden && run());
  run();
  return run;
}

async function pollStatus() {
  try {
    const status = await ask("/status");
    lastAnswer = Date.now();
    showStatus(status);
    $("offline").hidden = true;
    document.body.classList.remove("is-offline");
    if (lastTopology === null || Date.now() - lastTopology > TOPOLOGY_EVERY) await loadTopology(status.application_id);
    const drawing = $("topology").querySelector("svg");
    if (drawing) showLag(drawing, lagByTopic(status));
  } catch (error) {
    const since = lastAnswer ? `What you see is from ${new Date(lastAnswer).toLocaleTimeString()}.` : "";
    const what = error.status ? `The worker refuses the requests of this page: ${error.message}.` : `The worker does not answer (${error.message}).`;
    text($("offline"), `${what} ${since} Asking again.`);
    document.title = `${$("application").textContent} · ${error.status ? "refused" : "no answer"}`;
    $("offline").hidden = false;
    lastTopology = null; // the worker may come back with another one
    document.body.classList.add("is-offline");
  }
}

async function loadTopology(application) {
  const graph = await ask("/topology");
  lastTopology = Date.now();
  changed($("topology"), [graph, application], () => [
    graph.subtopologies.length === 0
      ? h("p", { class: "empty" }, "The topology has no nodes.")
      : drawTopology(graph, { application, onTable: choose }),
  ]);
}

async function pollTables() {
  try {
    tables = (await ask("/tables/")).tables;
    if (!tables.some((table) => table.name === chosen?.name)) {
      chosen = null; // a restart has taken the table away
      $("table-detail").hidden = true;
    }
    showTables();
    if (chosen === null) {
      const listed = tables.filter((table) => table.readable && !table.internal && table.kind !== "versioned");
      const full = listed.find((table) => table.entries?.count !== 0);  // windows are not counted
      choose((full ?? listed[0] ?? tables.find((table) => table.readable))?.name, { scroll: false });
    }
  } catch (error) {
    if (tables.length === 0) changed($("table-list"), error.message, () => [h("li", { class: "empty" }, error.message)]);
  }
}

async function pollEntries() {
  if (chosen === null) return;
  const { name, key } = chosen;
  const table = tables.find((each) => each.name === name);
  if (!table) return;
  const path = `/tables/${encodeURIComponent(name)}/`;
  try {
    let body;
    if (key !== null) body = await ask(`${path}?key=${encodeURIComponent(key)}`);
    else if (table.kind === "versioned") body = { entries: [], note: "Versions are read by key: look one up." };
    else body = await ask(`${path}?newest=true&limit=25`);
    if (chosen?.name === name && chosen.key === key) showEntries(table, body);
  } catch (error) {
    // Without a status nobody answered: what was shown last stays, and the page says so at its top.
    if (error.status && chosen?.name === name && chosen.key === key) showEntries(table, { entries: [], note: error.message });
  }
}

// --- showing ---

function showStatus(status) {
  document.title = `${status.application_id} · ${status.state}`;
  text($("application"), status.application_id);
  $("state").dataset.state = status.state;
  const state = status.paused ? `${status.state}, paused` : status.state;
  text($("state-text"), state); // why is among what stands out
  text($("address"), `${status.url} · ${status.state} for ${duration(status.state_seconds)}`);
  const others = status.workers.filter((url) => url !== status.url);
  changed($("others"), others, () => others.flatMap((url) => [h("a", { href: url }, url.replace(/^https?:\/\//, "")), " "]));
  $("workers").hidden = others.length === 0;
  text($("rate"), number(status.records_per_second));
  const dropped = status.dropped ? `, ${number(status.dropped)} dropped` : "";
  text($("processed"), `${number(status.processed)} since the worker started${dropped}`);
  drawSpark(status.history);
  const agents = total(status.agent_inputs.map((each) => each.lag));
  const consumers = total(status.consumers.flatMap((each) => Object.values(each.lag)));
  const lag = total([status.lag, agents, consumers]);
  text($("lag"), number(lag));
  const behind = status.tasks.filter((task) => task.inputs.some((each) => each.lag > 0)).length;
  text($("lag-note"), [
    status.tasks.length ? `${behind} of ${plural(status.tasks.length, "task")} behind` : "no tasks here",
    ...(agents ? [`${number(agents)} wait for agents`] : []),
    ...(consumers ? [`${number(consumers)} wait for consumers`] : []),
  ].join(", "));
  const { restore } = status;
  text($("restore"), restore.stores ? `${restore.percent} %` : status.state === "running" ? "complete" : "–");
  text($("restore-note"), restore.stores
    ? `${plural(restore.stores, "store")}, ${number(restore.records_per_second)} records/s${left(restore.seconds_left)}`
    : status.state === "running" ? "every local table can be read" : "");
  showFindings(status, lag);
  showPartitions(status);
}

function showFindings({ findings, state }, lag) {
  const running = lag > 0 ? `Nothing: the worker runs, and ${number(lag)} records wait.` : "Nothing: the worker runs and keeps up.";
  const calm = state === "running" ? running : `Nothing yet: the worker is ${state}.`;
  changed($("findings"), [findings, calm], () => findings.length === 0
    ? [h("li", { class: "calm" }, calm)]
    : findings.map((each) => h("li", { class: each.severity },
        h("span", { class: "severity" }, each.severity), h("strong", {}, each.message), h("p", {}, each.hint))));
  // Seconds tick in the sentences: what is read aloud changes only with what stands out.
  const subjects = findings.map((each) => `${each.severity}: ${each.subject}`).join(", ");
  changed($("findings-summary"), subjects, () => [findings.length ? `${plural(findings.length, "finding")}. ${subjects}` : "Nothing stands out."]);
}

function showPartitions({ tasks, standbys }) {
  const rows = tasks.flatMap((task) => [
    ...task.restoring.map((each) => ({ task, restore: each, weight: Infinity })),
    ...task.inputs.map((each) => ({ task, input: each, weight: each.lag ?? 0 })),
  ]).concat(
    standbys.flatMap((task) => task.stores.map((each) => ({ task, copy: each, weight: -1 }))),
  ).sort((a, b) => b.weight - a.weight || a.task.id.localeCompare(b.task.id, "en", { numeric: true }));
  const most = Math.max(1, ...rows.map((row) => row.input?.lag ?? 0));
  const shown = rows.slice(0, MAX_ROWS);
  text($("partitions-note"), rows.length > MAX_ROWS ? `the ${MAX_ROWS} furthest behind of ${rows.length}` : plural(tasks.length, "task"));
  changed($("partitions"), shown, () => shown.length === 0
    ? [h("tr", {}, h("td", { colspan: 6, class: "empty" }, "The worker has no task, and no standby."))]
    : shown.map((row) => (row.restore ? restoreRow(row) : row.copy ? copyRow(row) : inputRow(row, most))));
}

function restoreRow({ task, restore }) {
  const about = `${restore.store}: ${restore.percent} %, ${number(restore.records_per_second)} records/s${left(restore.seconds_left)}`;
  return h("tr", { class: "restoring" },
    h("th", { scope: "row" }, task.id), h("td", {}, `${restore.topic} ${restore.partition}`),
    h("td", { class: "bar-cell" }, h("progress", { max: 100, value: restore.percent, "aria-label": `Restore of ${restore.store}` }), h("span", {}, about)),
    amount(restore.position), amount(restore.end), amount(null));
}

function copyRow({ task, copy }) {
  const about = `${task.warmup ? "moves here when it is warm" : "standby"}, ${copy.lag === 0 ? "caught up" : `${number(copy.lag)} behind`}`;
  return h("tr", { class: "standby" },
    h("th", { scope: "row" }, task.id), h("td", {}, `${copy.topic} ${copy.partition}`),
    h("td", { class: "bar-cell" }, h("span", {}, about)), amount(copy.position), amount(copy.end), amount(null));
}

function inputRow({ task, input }, most) {
  const bar = h("span", { class: "bar" });
  bar.style.setProperty("--share", String((input.lag ?? 0) / most)); // allowed by the CSP, unlike a style attribute
  return h("tr", {},
    h("th", { scope: "row" }, task.id), h("td", {}, `${input.topic} ${input.partition}`),
    h("td", { class: "bar-cell" }, bar,
      h("span", {}, input.lag == null ? "unknown" : input.lag === 0 ? "caught up" : `${number(input.lag)} behind`),
      h("span", { class: "note" }, task.records_per_second > 0 ? `${number(task.records_per_second)} records/s` : "")),
    amount(input.position), amount(input.end), amount(input.buffered));
}

function showTables() {
  showChosen();
  const own = tables.filter((table) => !table.internal).length;
  text($("tables-note"), own ? plural(own, "table") : "");
  changed($("table-list"), [tables, chosen?.name], () => tables.length === 0
    ? [h("li", { class: "empty" }, "This topology keeps no state.")]
    : tables.flatMap((table, at) => {
        const button = h("button", { type: "button", "data-focus": table.name, "aria-pressed": String(chosen?.name === table.name) },
          h("strong", { title: table.name }, shortName(table.name)), h("span", {}, about(table)));
        button.disabled = !table.readable;
        button.addEventListener("click", () => choose(table.name, { scroll: false }));
        const heading = at === own ? [h("li", { class: "heading" }, "Stores of operators")] : [];
        return [...heading, h("li", {}, button)];
      }));
}

/** Where the chosen table comes from, and which workers have its partitions now. */
function showChosen() {
  const table = tables.find((each) => each.name === chosen?.name);
  if (!table) return;
  const from = table.topic ? `${table.global ? "from" : "changelog"} ${table.topic}` : "no changelog";
  text($("table-about"), [`${table.key} → ${table.value}`, from, ...elsewhere(table)].join(" · "));
}

function about(table) {
  const { local, total } = table.partitions;
  const where = table.global ? "global" : `${local.length}/${total} partitions`;
  const size = table.entries ? `${number(table.entries.count)}${table.entries.exact ? "" : "+"} entries · ` : "";
  return `${table.kind.replaceAll("_", " ")} · ${table.readable ? size + where : "not readable"}`;
}

/** Which partitions other workers have, or nobody. */
function elsewhere({ partitions }) {
  const byOwner = new Map();
  for (const [partition, url] of Object.entries(partitions.owners)) {
    if (!partitions.local.includes(Number(partition))) byOwner.set(url, [...(byOwner.get(url) ?? []), partition]);
  }
  return [...byOwner].map(([url, ids]) => `partition ${ids.join(", ")} ${url ? `on ${url}` : "has no owner"}`);
}

function choose(name, { scroll = true } = {}) {
  const table = tables.find((each) => each.name === name);
  if (!table?.readable) return;
  if (chosen?.name !== name) $("lookup-key").value = "";
  chosen = { name, key: null };
  $("table-detail").hidden = false;
  text($("table-name"), name);
  $("lookup-key").placeholder = { integer: "42", double: "0.5", hex: "00ff1a", uuid: "00000000-0000-0000-0000-000000000001", json: '{"id": 1}' }[table.key_format] ?? "key";
  showTables();
  changed($("entries"), null, () => []); // the next table may have the same entries
  text($("entries-note"), "Reading…");
  refreshEntries();
  if (scroll) $("table-detail").scrollIntoView({ block: "nearest" });
}

function showEntries(table, body) {
  const entries = body.entries ?? [body];
  const timed = entries.some((entry) => entry.timestamp != null);
  const windowed = entries.some((entry) => entry.start != null);
  const heads = ["Key", ...(windowed ? ["Window"] : []), "Value", ...(timed ? ["Time"] : []), "Partition"];
  const before = new Set([...$("entries").querySelectorAll("tbody tr")].map((row) => row.dataset.print));
  const rows = entries.map((entry) => {
    const print = JSON.stringify(entry);
    return h("tr", { "data-print": print, class: before.size && !before.has(print) ? "fresh" : "" },
      h("th", { scope: "row" }, h("span", {}, ...shortened(entry.key === "" ? '""' : keyText(table, entry.key)))),
      windowed && h("td", { class: "time" }, span(entry)),
      h("td", { class: "json" }, ...shortened(readable(entry.value), `/tables/${encodeURIComponent(table.name)}/?key=${encodeURIComponent(keyText(table, entry.key))}`)),
      timed && h("td", { class: "time" }, time(entry.timestamp)),
      h("td", { class: "amount" }, String(entry.partition)));
  });
  changed($("entries"), entries, () => rows.length === 0 ? [] : [
    h("thead", {}, h("tr", {}, ...heads.map((head) => h("th", { scope: "col", class: head === "Partition" ? "amount" : "" }, head)))),
    h("tbody", {}, ...rows)]);
  const newest = body.complete ? "The newest entries of all partitions, of every worker."
    : body.scanned_per_partition === undefined ? ""
    : `The newest of ${number(body.scanned_per_partition)} entries looked at in each partition: the table has more.`;
  const none = chosen.key === null ? "No entries yet." : `No entry for the key ${chosen.key}.`;
  const cut = body.cut_at_bytes ? "There are more, which do not fit on a page." : "";
  text($("entries-note"), body.note ?? (entries.length === 0 ? none : [newest, cut].filter(Boolean).join(" ")));
  $("lookup-clear").hidden = chosen.key === null;
}

function drawSpark(history) {
  const spark = $("spark");
  const most = Math.max(1, ...history);
  const points = history.map((value, i) => `${120 - history.length + i + 1},${(38 - (36 * value) / most).toFixed(1)}`);
  const line = points.length > 1 ? `M${points.join(" L")}` : "";
  const area = line ? `${line} L120,40 L${120 - history.length + 1},40 Z` : "";
  changed(spark, [line], () => [path("area", area), path("line", line)]);
  spark.setAttribute("aria-label", `Throughput of the last two minutes, at most ${number(most)} records a second`);
}

function lagByTopic(status) {
  const lags = new Map();
  for (const { topic, lag } of status.tasks.flatMap((task) => task.inputs)) {
    if (lag != null) lags.set(topic, (lags.get(topic) ?? 0) + lag);
  }
  return lags;
}

// --- small helpers ---

/** Renders anew only if the data changed, and keeps the focus where it was. */
function changed(element, data, render) {
  const print = JSON.stringify(data);
  if (element.print === print) return;
  element.print = print;
  const focus = element.contains(document.activeElement) ? document.activeElement.dataset.focus : null;
  element.replaceChildren(...render());
  if (focus != null) element.querySelector(`[data-focus="${CSS.escape(focus)}"]`)?.focus();
}

function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== "") element.setAttribute(name, value);
  element.append(...children.filter(Boolean));
  return element;
}

function path(name, d) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", "path");
  element.setAttribute("class", name);
  element.setAttribute("d", d);
  return element;
}

function text(element, value) {
  if (element.textContent !== value) element.textContent = value;
}

const amount = (value) => h("td", { class: "amount" }, number(value));
/** A key as it is looked up. Among JSON keys, a text has quotes, so that "1" is not 1. */
const keyText = (table, key) => (typeof key === "string" && table.key_format !== "json" ? key : JSON.stringify(key));
/** The beginning of a long text, how long it is, and where the whole of it is. */
function shortened(whole, href) {
  if (whole.length <= MAX_TEXT) return [whole];
  const length = `${number(whole.length)} characters`;
  return [`${whole.slice(0, MAX_TEXT)}…`, h("br", {}), href ? h("a", { class: "more", href }, `all ${length}`) : h("span", { class: "more" }, length)];
}

/** JSON with spaces, at which lines can end. */
const readable = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 1).replace(/\n */g, " "));
/** The sum of the lags that are known; null if none is. */
const total = (lags) => lags.reduce((sum, lag) => (lag == null ? sum : sum + lag), null);
const plural = (n, noun) => `${number(n)} ${noun}${n === 1 ? "" : "s"}`;
const left = (seconds) => (seconds == null ? "" : `, ${duration(seconds)} left`);

/** A window; its end without the day if that is the day of its start. */
function span({ start, end }) {
  const [from, to] = [time(start), time(end)];
  return `${from} – ${from.slice(0, 11) === to.slice(0, 11) ? to.slice(11) : to}`;
}

/** UTC without the zone; windows without an end reach past the last day that JavaScript has. */
function time(ms) {
  const date = new Date(Number(ms));
  return Number.isNaN(date.getTime()) ? "∞" : date.toISOString().replace("T", " ").replace(/\.000Z$|Z$/, "");
}

function duration(seconds) {
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

$("lookup").addEventListener("submit", (event) => {
  event.preventDefault();
  const key = $("lookup-key").value;
  chosen = { name: chosen.name, key: key === "" ? null : key };
  refreshEntries();
});

$("lookup-clear").addEventListener("click", () => {
  $("lookup-key").value = "";
  chosen = { name: chosen.name, key: null };
  $("lookup-key").focus();
  refreshEntries();
});

const refreshEntries = every(ENTRIES_EVERY, pollEntries);
every(TABLES_EVERY, pollTables);
every(STATUS_EVERY, pollStatus);
