// The page: shows what the server tells, as text. No text is ever made into markup.
"use strict";

const JAPANESE = navigator.language.startsWith("ja");
const inLanguage = (english, japanese) => (JAPANESE ? japanese : english);

const SUGGESTIONS = inLanguage(
  [
    "My favorite genre is mystery.",
    "What is my favorite genre?",
    "Recommend me something to read.",
    "Is The Cat and the Crossing Keeper volume 3 in stock?",
    "I would like to buy it.",
    "Where is my order?",
    "Show me all volumes of The Tide-Waiting Diner.",
    "I want to complain!",
  ],
  [
    "私の好きなジャンルはミステリーです。",
    "私の好きなジャンルは何ですか？",
    "おすすめの漫画を教えてください。",
    "『猫と踏切番』3巻は在庫ありますか？",
    "それを買いたいです。",
    "注文はいつ届きますか？",
    "全巻の一覧を見せてください。",
    "苦情があります。",
  ],
);

const STEPS = [
  [inLanguage("Tell it what you like", "好みを伝える"), () => send(SUGGESTIONS[0])],
  [inLanguage("Kill the worker", "ワーカーを停止"), () => killWorker()],
  [inLanguage("Ask again", "もう一度尋ねる"), () => send(SUGGESTIONS[1])],
  [inLanguage("New session", "新しい会話"), () => post("/sessions")],
  [inLanguage("Break a tool", "ツールを壊す"), async () => (await post("/stock", { fault: "error" })) && send(SUGGESTIONS[3])],
];

const byId = (id) => document.getElementById(id);
let turns = new Map(); // id -> elements of the turn
let views = {};
let shown = ""; // the agent whose memory is shown
let source = null;
let worker = 0; // the process that answers
let before = null; // what was said when the connection to it broke

function element(name, { text = "", classes = [], title = "" } = {}) {
  const made = document.createElement(name);
  made.textContent = text;
  made.classList.add(...classes);
  if (title) made.title = title;
  return made;
}

const badge = (state, text = state) => element("span", { text, classes: ["badge", state] });

// --- the conversation

/** Change the list of turns; who looks at its end still does. */
function changing(change) {
  const list = byId("turns");
  const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 80;
  change();
  if (atEnd) list.scrollTop = list.scrollHeight;
}

const showTurn = (turn) => changing(() => putTurn(turn));

function putTurn(turn) {
  let parts = turns.get(turn.id);
  if (!parts) {
    const item = element("li");
    parts = {
      question: element("div", { classes: ["question"] }), quotes: element("div", { classes: ["quotes"] }),
      answer: element("div", { classes: ["answer"] }), used: element("p", { classes: ["used"] }),
    };
    const act = (name, text, title) => {
      const button = element("button", { text, classes: [name], title });
      button.type = "button";
      button.addEventListener("click", () => post(`/${name}`, { turn: turn.id }));
      return button;
    };
    const acts = element("div", { classes: ["acts"] });
    acts.append(
      act("fork", "Branch from here", "A new session begins with everything up to here; this one stays in the store"),
      act("rewind", "Go back to here", "Everything after this answer is deleted, and what the agents noted with it"),
    );
    item.append(parts.question, parts.quotes, parts.answer, parts.used, acts);
    byId("welcome").hidden = true;
    byId("suggestions").hidden = false;
    byId("turns").append(item);
    turns.set(turn.id, parts);
    parts.question.textContent = turn.question;
  }
  parts.answer.textContent = turn.answer;
  putQuotes(turn);
  if (turn.done && turn.used) parts.used.textContent = `Memory used: ${turn.used.join(", ") || "this conversation only"}`;
  if (turn.agent) parts.answer.dataset.agent = turn.agent;
  parts.answer.classList.toggle("done", turn.done);
}

const MOST_QUOTES = 3;

function putQuotes({ id, quotes }) {
  const parts = turns.get(id);
  if (!parts) return;
  parts.quotes.replaceChildren(...quotes.slice(0, MOST_QUOTES).map((text) => element("blockquote", { text, title: text })));
  if (!quotes.length) return;
  const more = quotes.length > MOST_QUOTES ? `, and ${quotes.length - MOST_QUOTES} more` : "";
  parts.quotes.prepend(element("p", { text: `recalled for this question from what had left the window${more}:` }));
}

function addText({ id, agent, text }) {
  const parts = turns.get(id);
  if (!parts) return;
  changing(() => {
    parts.answer.dataset.agent = agent;
    parts.answer.append(text);
  });
}

// --- the memory

function showAgents() {
  const select = byId("agent");
  select.replaceChildren(...Object.keys(views).map((name) => element("option", { text: name })));
  if (!views[shown]) shown = Object.keys(views)[0] ?? "";
  select.value = shown;
  select.hidden = !shown;
  showView();
}

function showView() {
  const view = views[shown] ?? { tokens: 0, budget: 0, messages: [], told: [], tiers: {}, state: null };
  byId("tokens").textContent = view.tokens.toLocaleString("en");
  byId("budget").textContent = view.budget.toLocaleString("en");
  byId("bar").style.width = `${view.budget ? Math.min(100, (100 * view.tokens) / view.budget) : 0}%`;
  const count = (fate) => view.messages.filter((message) => message.fate === fate).length;
  byId("counts").textContent = `${count("kept")} kept · ${count("shortened")} shortened · ${count("dropped")} dropped`;
  byId("messages").replaceChildren(...view.messages.toReversed().map(messageRow));
  byId("state").replaceChildren(...stateRows(view.state));
  byId("tiers").replaceChildren(...tierChips(view.tiers));
  byId("told").replaceChildren(...view.told.map((text) => element("pre", { text: text.trim() })));
}

function messageRow(message) {
  const item = element("li", { title: `${message.role}, ${message.act || "said earlier"}: ${message.why}\n${message.text}` });
  item.dataset.fate = message.fate;
  item.append(
    badge(message.fate),
    element("span", { text: message.score.toFixed(2), classes: ["number"], title: "importance, 0 to 1" }),
    element("span", { text: `${message.role === "user" ? "▸" : "◂"} ${message.text}`, classes: ["text"] }),
    element("span", { text: `${message.tokens} t`, classes: ["number"] }),
  );
  return item;
}

function stateRows(state) {
  if (!state) return [];
  const rows = [["phase", [state.phase]]];
  if (state.intent) rows.push(["intent", [state.intent]]);
  for (const slot of state.slots) rows.push([`slot ${slot.name}`, slot.value ? [slot.value, badge(slot.status)] : ["—"]]);
  if (state.next_question) rows.push(["ask next", [state.next_question]]);
  for (const [type, group] of Map.groupBy(state.entities, (entity) => entity.type)) {
    rows.push([`it: ${type}`, [...group.map((entity) => entity.value), badge(group[0].confidence)]]);
  }
  return rows.flatMap(([name, values]) => {
    const value = element("dd");
    value.append(...values.flatMap((part) => [part, " "]));
    return [element("dt", { text: name }), value];
  });
}

function tierChips(tiers) {
  if (tiers.hot === undefined) return [];
  const chip = (name, value) => {
    const item = element("li");
    item.append(`${name} `, value);
    return item;
  };
  return [
    chip("hot", tiers.hot === "none" ? "in this process" : badge(tiers.hot)),
    chip("durable", badge(tiers.durable)),
    chip("turns", String(tiers.turns)),
    chip("in the log", String(tiers.messages)),
    chip("in the window", String(tiers.window_messages)),
    chip("unsaved", String(tiers.unsaved_messages)),
    ...(tiers.possible_loss ? [chip("possible loss", badge("down", "yes"))] : []),
  ];
}

// --- what happened: states of breakers over time, and answers that stood in

const SHOWN_SECONDS = 180, AT_LEAST_SECONDS = 30;
const opened = Date.now();
const tracks = new Map(); // tool -> [{ state, from }], the present one last
const happened = []; // { at, text, kind }, the latest first

function note(text, kind = "") {
  happened.unshift({ at: new Date(), text, kind });
  happened.length = Math.min(happened.length, 8);
  byId("happened").replaceChildren(
    ...happened.map((each) => {
      const item = element("li", { classes: each.kind ? [each.kind] : [] });
      item.append(element("time", { text: each.at.toLocaleTimeString("en-GB") }), " ", each.text);
      return item;
    }),
  );
}

function follow(tools) {
  const words = { open: "opened: calls are not even tried", half_open: "half open: the next call is a trial", closed: "closed again" };
  for (const [name, tool] of Object.entries(tools)) {
    const track = tracks.get(name) ?? { spans: [], stale: [], failures: 0, stood: tool.stale };
    const last = track.spans.at(-1);
    if (last?.state !== tool.state) {
      track.spans.push({ state: tool.state, from: Date.now() });
      if (last) note(`${name} ${words[tool.state]}`, tool.state);
    }
    if (tool.failures_in_a_row > track.failures) note(`${name} failed (${tool.failures_in_a_row} in a row)`, "failed");
    if (tool.stale > track.stood) {
      track.stale.push(Date.now());
      note(`${name}: an earlier answer stood in`, "stale");
    }
    [track.failures, track.stood] = [tool.failures_in_a_row, tool.stale];
    tracks.set(name, track);
  }
  drawTracks();
}

function drawTracks() {
  const now = Date.now();
  const begin = Math.max(now - SHOWN_SECONDS * 1000, Math.min(opened, now - AT_LEAST_SECONDS * 1000));
  const place = (at) => Math.max(0, (100 * (at - begin)) / (now - begin));
  const eventful = [...tracks].filter(([, track]) => track.spans.length > 1 || track.stale.length);
  byId("tracks").replaceChildren(
    ...eventful.map(([name, { spans, stale }]) => {
      const line = element("div", { classes: ["track"] });
      spans.forEach(({ state, from }, at) => {
        const left = place(from), right = place(spans[at + 1]?.from ?? now);
        if (right <= 0) return;
        const span = element("span", { text: right - left > 14 ? state.replace("_", " ") : "", classes: ["span", state], title: state.replace("_", " ") });
        span.style.left = `${left}%`;
        span.style.width = `${right - left}%`;
        line.append(span);
      });
      for (const at of stale.filter((time) => time > begin)) {
        const mark = element("span", { text: "◆", classes: ["mark"], title: "an earlier answer stood in" });
        mark.style.left = `min(${place(at)}%, 100% - .4rem)`; // whole, also where it is new
        line.append(mark);
      }
      const row = element("div", { classes: ["tool"] });
      row.append(element("span", { text: name }), line);
      return row;
    }),
  );
  if (eventful.some(([, track]) => track.stale.length)) {
    byId("tracks").append(element("p", { text: "◆ an earlier answer stood in", classes: ["key"] }));
  }
}

setInterval(drawTracks, 2_000);

function transcript() {
  return [...turns.values()].map(({ question, answer }) => ({ question: question.textContent, answer: answer.textContent, done: answer.classList.contains("done") }));
}

function compare(process) {
  const now = transcript(), done = before.said.filter((turn) => turn.done);
  const same = done.every((turn, at) => now[at]?.question === turn.question && now[at]?.answer === turn.answer);
  const cut = before.said.length > done.length;
  const what = `Process ${before.worker} was killed${cut ? " in the middle of an answer" : ""}. Process ${process} knew nothing, and restored ` +
    `${done.length} finished turn${done.length === 1 ? "" : "s"}${same ? ", each as it was" : ", NOT as they were"}` +
    `${cut ? "; the one that was cut is closed, and can be asked again." : "."}`;
  byId("restored").textContent = what;
  byId("restored").hidden = false;
  note(`worker ${before.worker} killed, worker ${process} restored ${done.length} turns`, same ? "closed" : "open");
}

/** Show each memory of the user with its source, and a button that deletes it. */
function showKnown({ known, memories }) {
  byId("known").textContent = known;
  byId("memories").replaceChildren(
    ...memories.map(({ id, type, text, source, at }) => {
      const item = element("li"), remove = element("button", { text: "Delete" });
      remove.type = "button";
      remove.setAttribute("aria-label", `Delete: ${text}`);
      remove.addEventListener("click", () => post("/memories", { delete: id }));
      const learned = new Date(at * 1000).toLocaleString();
      item.append(element("span", { text }), element("small", { text: `${type}, from ${source}, ${learned}` }), remove);
      return item;
    }),
  );
}

function showTools({ tools, fault }) {
  follow(tools);
  byId("fault").value = fault;
  byId("tools").tBodies[0].replaceChildren(
    ...Object.entries(tools).map(([name, tool]) => {
      const row = element("tr");
      row.dataset.tool = name;
      const seconds = Math.ceil(tool.retry_after_s ?? 0);
      const breaker = element("td");
      breaker.append(badge(tool.state, tool.state.replace("_", " ")), seconds ? ` ${seconds} s` : "");
      const server = element("td");
      server.append(badge(tool.server_state ?? "up"));
      const stoodIn = tool.stale ? `${tool.stale} stale` : "";
      row.append(
        element("td", { text: name }), breaker, server, element("td", { text: String(tool.calls) }),
        element("td", { text: String(tool.failures_in_a_row) }), element("td", { text: stoodIn }),
      );
      return row;
    }),
  );
}

// --- the server

const EVENTS = {
  all(event) {
    problem("");
    byId("who").textContent = `you are ${event.user}`;
    const scripted = event.model === "scripted";
    byId("model").textContent = scripted ? "answers are scripted" : `answers by ${event.model}`;
    byId("scripted").textContent = scripted
      ? "The answers are scripted: rules stand in for a model, so nothing here needs a key or a network. MANGAASSIST_MODEL=bedrock (or --model) lets a model answer."
      : `A model answers: ${event.model}.`;
    byId("turns").replaceChildren();
    turns = new Map();
    byId("welcome").hidden = event.turns.length > 0;
    byId("suggestions").hidden = !event.turns.length;
    event.turns.forEach(showTurn);
    byId("worker").textContent = String(event.worker);
    if (before && before.user === event.user && worker !== event.worker) compare(event.worker);
    worker = event.worker;
    before = null;
    byId("kill").disabled = false;
    views = event.views;
    shown = event.agent;
    showKnown(event);
    showTools(event);
    showAgents();
    byId("turns").scrollTop = byId("turns").scrollHeight;
  },
  turn: (event) => showTurn(event.turn),
  text: addText,
  quotes: (event) => changing(() => putQuotes(event)),
  done(event) {
    showTurn(event.turn);
    showKnown(event);
  },
  view(event) {
    views[event.agent] = event.view;
    shown = event.agent;
    showAgents();
  },
  known: showKnown,
  tools: showTools,
  problem: (event) => problem(event.text),
};

function connect() {
  source?.close();
  source = new EventSource("/events");
  source.onopen = () => connection("connected");
  source.onerror = () => {
    before ??= { worker, user: byId("who").textContent.replace("you are ", ""), said: transcript() };
    connection(source.readyState === EventSource.CLOSED ? "lost" : "connecting");
  };
  source.onmessage = (message) => {
    const event = JSON.parse(message.data);
    EVENTS[event.type](event);
  };
}

function connection(state) {
  byId("connection").dataset.state = state;
  byId("connection").textContent = state === "lost" ? "lost: reload the page" : state;
}

function problem(text) {
  byId("problem").textContent = text;
  byId("problem").hidden = !text;
}

async function post(path, body = {}) {
  problem("");
  try {
    const response = await fetch(path, {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
    });
    if (!response.ok) problem(await response.text());
    return response.ok;
  } catch {
    problem("The server does not answer. Your message was not sent.");
    return false;
  }
}

async function send(text) {
  const accepted = text.trim() && (await post("/messages", { text }));
  if (accepted) byId("text").value = "";
  return accepted;
}

byId("form").addEventListener("submit", (event) => {
  event.preventDefault();
  send(byId("text").value);
});
byId("text").addEventListener("keydown", (event) => {
  // isComposing: Enter ends the conversion of Japanese input, not the message
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    byId("form").requestSubmit();
  }
});
byId("agent").addEventListener("change", (event) => {
  shown = event.target.value;
  showView();
});
byId("fault").addEventListener("change", (event) => post("/stock", { fault: event.target.value }));
byId("new").addEventListener("click", () => post("/sessions"));
byId("forget").addEventListener("click", () => byId("sure").showModal());
byId("sure").addEventListener("close", () => {
  if (byId("sure").returnValue === "forget") post("/forget");
  byId("sure").returnValue = "";
});
async function killWorker() {
  byId("restored").hidden = true;
  byId("kill").disabled = true;
  const accepted = await post("/kill");
  if (!accepted) byId("kill").disabled = false;
  return accepted;
}

byId("kill").addEventListener("click", killWorker);
byId("panel").addEventListener("click", () => {
  const open = document.body.classList.toggle("panel");
  byId("panel").setAttribute("aria-expanded", String(open));
  byId("panel").textContent = open ? "Chat" : "Memory";
});
byId("steps").append(
  ...STEPS.map(([text, run]) => {
    const item = element("li"), button = element("button", { text });
    button.type = "button";
    button.addEventListener("click", async () => {
      if (await run()) item.classList.add("done");
    });
    item.append(button);
    return item;
  }),
);
for (const place of ["suggestions", "starters"]) {
  byId(place).append(
    ...SUGGESTIONS.map((text) => {
      const button = element("button", { text });
      button.type = "button";
      button.addEventListener("click", () => send(text));
      return button;
    }),
  );
}
// A browser keeps few connections to one server: pages that nobody sees give theirs back.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) source?.close();
  else connect();
});
connect();
