// The page: shows what the server tells, as text. No text is ever made into markup.
"use strict";

const SUGGESTIONS = [
  "My favorite genre is mystery.",
  "Recommend me something to read.",
  "静かな料理の漫画を探しています。",
  "『猫と踏切番』3巻は在庫ありますか？",
  "I would like to buy it.",
  "Where is my order?",
  "全巻の一覧を見せてください。",
  "I want to complain!",
];

const byId = (id) => document.getElementById(id);
let turns = new Map(); // id -> elements of the turn
let views = {};
let shown = ""; // the agent whose memory is shown
let source = null;

function element(name, { text = "", classes = [], title = "" } = {}) {
  const made = document.createElement(name);
  made.textContent = text;
  made.classList.add(...classes);
  if (title) made.title = title;
  return made;
}

const badge = (state, text = state) => element("span", { text, classes: ["badge", state] });

// --- the conversation

function showTurn(turn) {
  const list = byId("turns");
  const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 80;
  let parts = turns.get(turn.id);
  if (!parts) {
    const item = element("li");
    parts = { question: element("div", { classes: ["question"] }), answer: element("div", { classes: ["answer"] }) };
    item.append(parts.question, parts.answer);
    list.append(item);
    turns.set(turn.id, parts);
    parts.question.textContent = turn.question;
  }
  parts.answer.textContent = turn.answer;
  if (turn.agent) parts.answer.dataset.agent = turn.agent;
  parts.answer.classList.toggle("done", turn.done);
  if (atEnd) list.scrollTop = list.scrollHeight;
}

function addText({ id, agent, text }) {
  const parts = turns.get(id);
  if (!parts) return;
  const list = byId("turns");
  const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 80;
  parts.answer.dataset.agent = agent;
  parts.answer.append(text);
  if (atEnd) list.scrollTop = list.scrollHeight;
}

// --- the memory

function showAgents() {
  const select = byId("agent");
  select.replaceChildren(...Object.keys(views).map((name) => element("option", { text: name })));
  if (!views[shown]) shown = Object.keys(views)[0] ?? "";
  select.value = shown;
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

function showTools({ tools, fault }) {
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
    byId("turns").replaceChildren();
    turns = new Map();
    event.turns.forEach(showTurn);
    views = event.views;
    shown = event.agent;
    byId("known").textContent = event.known;
    showTools(event);
    showAgents();
    byId("turns").scrollTop = byId("turns").scrollHeight;
  },
  turn: (event) => showTurn(event.turn),
  text: addText,
  done(event) {
    showTurn(event.turn);
    byId("known").textContent = event.known;
  },
  view(event) {
    views[event.agent] = event.view;
    shown = event.agent;
    showAgents();
  },
  tools: showTools,
  problem: (event) => problem(event.text),
};

function connect() {
  source?.close();
  source = new EventSource("/events");
  source.onopen = () => connection("connected");
  source.onerror = () => connection(source.readyState === EventSource.CLOSED ? "lost" : "connecting");
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
  if (text.trim() && (await post("/messages", { text }))) byId("text").value = "";
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
byId("forget").addEventListener("click", () => post("/forget"));
byId("suggestions").append(
  ...SUGGESTIONS.map((text) => {
    const button = element("button", { text });
    button.type = "button";
    button.addEventListener("click", () => send(text));
    return button;
  }),
);
// A browser keeps few connections to one server: pages that nobody sees give theirs back.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) source?.close();
  else connect();
});
connect();
