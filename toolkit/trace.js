"use strict";

const SOURCES = new Map([ // by the names that reports use: class, and what it says
  ["target", ["target", "the target's own"]],
  ["model", ["model", "drafted by the draft view, accepted"]],
  ["second best", ["second", "the draft view's second choice, accepted"]],
  ["lookup", ["lookup", "copied from the text before, accepted"]],
  ["table", ["table", "from the table, accepted"]],
  ["recycled", ["recycled", "what the target held likely before, accepted"]],
  ["grammar", ["grammar", "the only text that the grammar allows"]],
]);

function element(tag, fields = {}, ...inside) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(fields)) {
    if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...inside); // texts become text nodes, never markup
  return made;
}

const ratio = (part, whole) => (whole ? (part / whole).toFixed(2) : "-");
const percent = (part, whole) => (whole ? `${Math.round((100 * part) / whole)}\u00a0%` : "-");
const gigabytes = (size) => `${(size / 1e9).toPrecision(3)} GB`;

/** One reply: its tokens, and the sums of its rounds. */
class Reply {
  constructor(name) {
    this.name = name;
    this.tokens = [];
    this.rounds = this.verified = this.drafted = this.accepted = this.read = this.bf16 = 0;
    this.text = element("div", { className: "reply" });
    this.section = element("section", {}, element("h3", {}, name), this.text);
    this.rows = element("tbody");
  }

  add(round) {
    const place = round.rounds; // 0: the pass over the prompt
    this.rounds = place;
    this.verified += place ? round.tokens.length : 0;
    for (const token of round.tokens) {
      this.tokens.push(token);
      const [kind, what] = SOURCES.get(token.source) ?? ["model", token.source];
      const title = place ? `${what}; round ${place}` : "by the pass over the prompt";
      const shown = `token ${kind}${token.text ? "" : " empty"}`;
      this.text.append(element("span", { className: shown, title }, token.text));
    }
    this.drafted += round.drafted;
    this.accepted += round.accepted;
    this.read = round.read;
    this.bf16 = round.bf16;
    this.list(place, round);
  }

  /** The round as a line of the table: what colours say, for those who do not see them. */
  list(place, round) {
    const by = round.tokens.map((token) => `${JSON.stringify(token.text)} ${token.source}`);
    const cells = [by.join(", "), round.drafted, round.accepted, gigabytes(round.read)];
    const head = element("th", { scope: "row" }, place ? String(place) : "prompt");
    this.rows.append(
      element("tr", {}, head, ...cells.map((cell) => element("td", {}, String(cell)))),
    );
  }

  get perVerification() {
    return ratio(this.verified, this.rounds);
  }

  get line() {
    const share = percent(this.read, this.bf16);
    return `${this.name}: ${this.tokens.length} tokens, ${this.perVerification} per verification,`
      + ` ${share} of the bytes of BF16.`;
  }
}

/** A reply, or one with drafts beside the same decoded plainly, with their figures. */
class View {
  constructor(names, status = element("p", { role: "status" })) {
    this.replies = names.map((name) => new Reply(name));
    this.status = status;
    this.legend = element("ul", { className: "legend", "aria-label": "What made the tokens" });
    this.figures = element("tbody");
    const heads = ["figure", ...names].map((name) => element("th", { scope: "col" }, name));
    const table = element("table", {},
      element("caption", {}, "Rounds so far"),
      element("thead", {}, element("tr", {}, ...heads)), this.figures);
    const texts = this.replies.map((reply) => reply.section);
    this.parts = [
      this.status,
      element("div", { className: "figures" }, table),
      this.legend,
      element("div", { className: "beside" }, ...texts),
      element("p", { className: "note" }, "Bytes of weights, keys and values that passes read after"
        + " the prompt; BF16 is plain decoding of the unpacked model."),
      ...this.replies.map(roundTable),
    ];
    this.show();
  }

  add(which, round) {
    this.replies[which].add(round);
    this.show();
  }

  show() {
    const row = (name, cell) => element("tr", {}, element("th", { scope: "row" }, name),
      ...this.replies.map((reply) => element("td", {}, cell(reply))));
    this.figures.replaceChildren(
      row("tokens", (reply) => String(reply.tokens.length)),
      row("verifications", (reply) => String(reply.rounds)),
      row("tokens per verification", (reply) => reply.perVerification),
      row("accepted / drafted", (reply) => `${reply.accepted} / ${reply.drafted}`),
      row("read so far", (reply) => gigabytes(reply.read)),
      row("BF16 would have read", (reply) => gigabytes(reply.bf16)),
      row("read, of BF16", share),
    );
    const made = this.replies[0].tokens;
    this.legend.replaceChildren(...[...SOURCES].map(([name, [kind, what]]) => {
      const count = made.filter((token) => token.source === name).length;
      const sample = element("span", { className: `token ${kind}` }, "\u00a0token\u00a0");
      return element("li", {}, sample, ` ${what}: ${count}`);
    }));
  }

  /** What is said at the end, once. */
  end() {
    const [reply, plain] = this.replies;
    const ids = this.replies.map((each) => each.tokens.map((token) => token.id).join());
    const verdict = !plain ? "" : ids[0] === ids[1]
      ? "The two replies are identical, token for token."
      : "THE TWO REPLIES DIFFER.";
    this.status.textContent =
      [reply.line, plain?.line, verdict].filter((text) => text).join(" ");
  }
}

function share(reply) {
  const label = `bytes read, of BF16: ${reply.name}`;
  const bar = element("meter", { min: 0, max: Math.max(reply.bf16, reply.read, 1),
    value: reply.read, "aria-label": label });
  const cell = document.createDocumentFragment();
  cell.append(bar, ` ${percent(reply.read, reply.bf16)}`);
  return cell;
}

function roundTable(reply) {
  const heads = ["round", "tokens and what made them", "drafted", "accepted", "read so far"];
  const head = element("tr", {}, ...heads.map((name) => element("th", { scope: "col" }, name)));
  const table = element("table", {}, element("thead", {}, head), reply.rows);
  const summary = element("summary", {}, `Round by round: ${reply.name}`);
  return element("details", {}, summary, element("div", { className: "figures" }, table));
}

// --- a recorded run ------------------------------------------------------------------------------

function showRecorded(replies) {
  replies.forEach(({ prompt, reply, plain }, place) => {
    const view = new View(plain ? ["With drafts", "Plain"] : ["Reply"]);
    for (const round of reply) view.add(0, round);
    for (const round of plain ?? []) view.add(1, round);
    const messages = typeof prompt === "string" ? [{ role: "user", content: prompt }] : prompt;
    const quotes = messages.map(({ role, content }) =>
      element("blockquote", { title: role }, content));
    view.end();
    document.body.append(element("h2", {}, `Prompt ${place + 1}`), ...quotes, ...view.parts);
  });
}

// --- a server ------------------------------------------------------------------------------------

const number = (fields) => element("input", { type: "number", required: true, ...fields });
const button = (name, fields) => element("button", { type: "button", ...fields }, name);
const field = (name, input) => element("label", {}, name, input);

/** A conversation with the model: its turns, and the form for the next one. */
class Asker {
  constructor({ keyed, tokens }) {
    this.messages = [];
    this.prompt = element("textarea", { required: true, value: "Why is the sky blue?" });
    this.tokens = number({ min: 1, max: tokens, value: Math.min(tokens, 128) });
    this.temperature = number({ min: 0, max: 2, step: "any", value: 0 });
    this.schema = element("textarea", { spellcheck: false });
    this.key = element("input", { type: "password", autocomplete: "off", required: keyed });
    this.stop = button("Stop", { disabled: true });
    this.clear = button("New conversation", { disabled: true });
    this.status = element("p", { role: "status" });
    this.error = element("p", { role: "alert" });
    this.place = element("main");
    const row = element("div", {}, field("Most tokens", this.tokens),
      field("Temperature (0: always the likeliest token)", this.temperature),
      ...(keyed ? [field("API key", this.key)] : []),
      element("button", { type: "submit" }, "Reply"), this.stop, this.clear);
    this.form = element("form", {}, field("Prompt (Ctrl+Enter sends it)", this.prompt), row,
      element("details", {}, element("summary", {}, "JSON Schema"),
        field("Schema that the reply must match (empty: any text)", this.schema)));
    this.form.addEventListener("submit", (event) => { event.preventDefault(); this.ask(); });
    this.form.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.form.requestSubmit();
    });
    this.stop.addEventListener("click", () => this.going?.abort());
    this.clear.addEventListener("click", () => this.forget());
    document.body.append(this.place, this.form, this.status, this.error);
  }

  /** Begin another conversation. */
  forget() {
    this.messages = [];
    this.place.replaceChildren();
    this.status.textContent = "A new conversation.";
    this.clear.disabled = true;
    this.prompt.focus();
  }

  /** The reply to the next turn; what was stopped stays as far as it came. */
  async ask() {
    if (this.going) return;
    this.error.textContent = "";
    let asked;
    try {
      asked = this.request();
    } catch (error) {
      this.error.textContent = `The schema must be JSON: ${error.message}`;
      return;
    }
    this.going = new AbortController();
    const view = new View(["With drafts", "Plain"], element("p", { className: "note" }));
    const turn = this.show(asked.messages.at(-1), view);
    this.status.textContent = "The model replies.";
    this.stop.disabled = false;
    this.clear.disabled = true;
    let failure = null;
    try {
      asked.model = (await (await this.fetch("v1/models")).json()).data[0].id;
      for (const which of view.replies.keys())
        await this.stream({ ...asked, plain: which > 0 }, (round) => view.add(which, round));
      view.end();
    } catch (error) {
      failure = this.going.signal.aborted ? "Stopped." : error.message;
    }
    this.end(asked.messages, view, turn, failure);
  }

  /** Keep a turn in the conversation, unless nothing came. */
  end(messages, view, turn, failure) {
    const content = view.replies[0].tokens.map((token) => token.text).join("");
    if (content) {
      this.messages = [...messages, { role: "assistant", content }];
      this.prompt.value = "";
    } else turn.remove();
    this.going = null;
    this.stop.disabled = true;
    this.clear.disabled = !this.messages.length;
    this.status.textContent = failure ? "" : `Done. ${view.status.textContent}`;
    this.error.textContent = failure ?? "";
  }

  show(message, view) {
    const name = `Turn ${this.place.children.length + 1}`;
    const turn = element("section", { "aria-label": name }, element("h2", {}, name),
      element("blockquote", { title: message.role }, message.content), ...view.parts);
    this.place.append(turn);
    turn.scrollIntoView();
    return turn;
  }

  /** The body of the next request. Throws if the schema is no JSON. */
  request() {
    const text = this.schema.value.trim();
    const schema = text && JSON.parse(text);
    return {
      messages: [...this.messages, { role: "user", content: this.prompt.value }],
      max_tokens: this.tokens.valueAsNumber, temperature: this.temperature.valueAsNumber,
      seed: Math.floor(Math.random() * 2 ** 32),  // of both replies, which are then the same
      ...(text && { response_format: { type: "json_schema", json_schema: { name: "reply", schema } } }),
    };
  }

  async fetch(path, body) {
    const headers = { "Content-Type": "application/json", Authorization: `Bearer ${this.key.value}` };
    const answer = await fetch(path, { method: body ? "POST" : "GET", headers,
      body: body && JSON.stringify(body), signal: this.going.signal });
    if (!answer.ok) throw new Error((await answer.json()).error.message);
    return answer;
  }

  /** Read the rounds of one reply. */
  async stream(asked, take) {
    const options = { stream: true, stream_options: { include_trace: true } };
    const answer = await this.fetch("v1/chat/completions", { ...asked, ...options });
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) throw new Error("The reply must end, and the connection did before.");
      const events = (rest + value).split("\n\n");
      rest = events.pop();
      for (const event of events) {
        const data = event.slice("data: ".length);
        if (data === "[DONE]") return;
        const { error, trace } = JSON.parse(data);
        if (error) throw new Error(error.message);
        if (trace) take(trace);
      }
    }
  }
}

const found = JSON.parse(document.getElementById("data").textContent);
if (found.live) new Asker(found);
else showRecorded(found.replies);
