// The page: shows the events of the server as text. No text is ever made into markup.
"use strict";

const JAPANESE = navigator.language.startsWith("ja");
const inLanguage = (english, japanese) => (JAPANESE ? japanese : english);
if (JAPANESE) {
  document.documentElement.lang = "ja";
  for (const each of document.querySelectorAll("[data-ja]")) each.textContent = each.dataset.ja;
}

// Names that the server sends, for the captions of answers and the card of memories.
const NAMES_JA = {
  "user memory": "ユーザーの記憶", "recall of earlier messages": "以前の発言の引用", "state of the task": "手続きの状態",
  "this session": "この会話", "an earlier session": "以前の会話", preference: "好み", interaction_summary: "会話の要約",
  behavioral_pattern: "傾向", feedback: "ご意見", fact: "事実", episode: "出来事", weekly_rollup: "週の要約", monthly_rollup: "月の要約",
};
const named = (name) => (JAPANESE && NAMES_JA[name]) || name.replaceAll("_", " ");

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
let before = null; // the transcript at the time when the connection to it broke

function element(name, { text = "", classes = [], title = "" } = {}) {
  const made = document.createElement(name);
  made.textContent = text;
  made.classList.add(...classes);
  if (title) made.title = title;
  return made;
}

const badge = (state, text = state) => element("span", { text, classes: ["badge", state] });

// --- the conversation

/** Change the list of turns; a reader at its end stays there. */
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
      act("fork", inLanguage("Branch from here", "ここから分岐"), "A new session begins with everything up to here; this one stays in the store"),
      act("rewind", inLanguage("Go back to here", "ここまで戻る"), "Everything after this answer is deleted, and what the agents noted with it"),
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
  if (turn.done && turn.used) {
    const used = turn.used.map(named).join(inLanguage(", ", "、")) || inLanguage("this conversation only", "この会話のみ");
    parts.used.textContent = inLanguage("Memory used: ", "使った記憶：") + used;
  }
  if (turn.agent) parts.answer.dataset.agent = turn.agent;
  parts.answer.classList.toggle("done", turn.done);
}

const MOST_QUOTES = 3;

function putQuotes({ id, quotes }) {
  const parts = turns.get(id);
  if (!parts) return;
  parts.quotes.replaceChildren(...quotes.slice(0, MOST_QUOTES).map((text) => element("blockquote", { text, title: text })));
  if (!quotes.length) return;
  const others = quotes.length - MOST_QUOTES;
  const more = others > 0 ? inLanguage(`, and ${others} more`, `、ほか${others}件`) : "";
  parts.quotes.prepend(element("p", {
    text: inLanguage(`evicted messages, quoted for this question${more}:`, `文脈から外れた発言を、この質問のために引用${more}：`),
  }));
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
  const view = views[shown] ?? { tokens: 0, budget: 0, messages: [], added_texts: [], tiers: {}, state: null };
  byId("tokens").textContent = view.tokens.toLocaleString("en");
  byId("budget").textContent = view.budget.toLocaleString("en");
  byId("bar").style.width = `${view.budget ? Math.min(100, (100 * view.tokens) / view.budget) : 0}%`;
  const count = (outcome) => view.messages.filter((message) => message.outcome === outcome).length;
  byId("counts").textContent = `${count("kept")} kept · ${count("shortened")} shortened · ${count("dropped")} dropped`;
  byId("messages").replaceChildren(...view.messages.toReversed().map(messageRow));
  byId("state").replaceChildren(...stateRows(view.state));
  byId("tiers").replaceChildren(...tierChips(view.tiers));
  byId("added-texts").replaceChildren(...view.added_texts.map((text) => element("pre", { text: text.trim() })));
}

function messageRow(message) {
  const item = element("li", { title: `${message.role}, ${message.act || "earlier message"}: ${message.why}\n${message.text}` });
  item.dataset.outcome = message.outcome;
  item.append(
    badge(message.outcome),
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

// --- events: states of breakers over time, and earlier answers that replaced failed calls

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
  const words = { open: "opened: calls are rejected", half_open: "half open: the next call is a probe", closed: "closed again" };
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
      note(`${name}: replaced by an earlier answer`, "stale");
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
        const mark = element("span", { text: "◆", classes: ["mark"], title: "replaced by an earlier answer" });
        mark.style.left = `min(${place(at)}%, 100% - .4rem)`; // whole, also where it is new
        line.append(mark);
      }
      const row = element("div", { classes: ["tool"] });
      row.append(element("span", { text: name }), line);
      return row;
    }),
  );
  if (eventful.some(([, track]) => track.stale.length)) {
    byId("tracks").append(element("p", { text: "◆ replaced by an earlier answer", classes: ["key"] }));
  }
}

setInterval(drawTracks, 2_000);

function transcript() {
  return [...turns.values()].map(({ question, answer }) => ({ question: question.textContent, answer: answer.textContent, done: answer.classList.contains("done") }));
}

function compare(process) {
  const now = transcript(), done = before.turns.filter((turn) => turn.done);
  const same = done.every((turn, at) => now[at]?.question === turn.question && now[at]?.answer === turn.answer);
  const cut = before.turns.length > done.length;
  byId("restored").textContent = inLanguage(
    `Process ${before.worker} was killed${cut ? " in the middle of an answer" : ""}. Process ${process} began empty, and restored ` +
      `${done.length} finished turn${done.length === 1 ? "" : "s"}${same ? ", each unchanged" : ", NOT unchanged"}` +
      `${cut ? "; the interrupted one is closed, and can be asked again." : "."}`,
    `プロセス${before.worker}を${cut ? "回答の途中で" : ""}停止しました。新しいプロセス${process}が、完了した${done.length}回のやりとりを` +
      `${same ? "そのまま" : "異なる内容で"}復元しました。${cut ? "途中の回答は閉じられ、もう一度尋ねられます。" : ""}`,
  );
  byId("restored").hidden = false;
  note(`worker ${before.worker} killed, worker ${process} restored ${done.length} turns`, same ? "closed" : "open");
}

/** Show each memory of the user with its source, and a button that deletes it. */
function showKnown({ known, memories }) {
  byId("known").textContent = known;
  byId("memories").replaceChildren(
    ...memories.map(({ id, type, text, source, at }) => {
      const item = element("li"), remove = element("button", { text: inLanguage("Delete", "削除") });
      remove.type = "button";
      remove.setAttribute("aria-label", `${remove.textContent}: ${text}`);
      remove.addEventListener("click", () => post("/memories", { delete: id }));
      const learned = new Date(at * 1000).toLocaleString();
      const origin = inLanguage(`${named(type)}, from ${named(source)}, ${learned}`, `${named(type)}、${named(source)}より、${learned}`);
      item.append(element("span", { text }), element("small", { text: origin }), remove);
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
    byId("model").textContent = scripted
      ? inLanguage("answers are scripted", "回答は台本です")
      : inLanguage(`answers by ${event.model}`, `回答：${event.model}`);
    byId("scripted").textContent = scripted
      ? inLanguage(
        "The answers are scripted: rules replace a model, so you need no key and no network. With MANGAASSIST_MODEL=bedrock (or --model) a model answers.",
        "回答は台本です。モデルの代わりに規則が答えるので、鍵もネットワークも要りません。MANGAASSIST_MODEL=bedrock（または --model）でモデルが答えます。",
      )
      : inLanguage(`A model answers: ${event.model}.`, `モデルが答えます：${event.model}`);
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
    before ??= { worker, user: byId("who").textContent.replace("you are ", ""), turns: transcript() };
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
  byId("panel").textContent = open ? inLanguage("Chat", "会話") : inLanguage("Memory", "記憶");
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
// A browser allows few connections to one server, so a hidden page closes its connection.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) source?.close();
  else connect();
});
connect();
