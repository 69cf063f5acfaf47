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

/** A reply with drafts, and beside it the same decoded plainly, with their figures. */
class View {
  constructor(names) {
    this.replies = names.map((name) => new Reply(name));
    this.status = element("p", { role: "status" });
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
  end(before = "") {
    const [reply, plain] = this.replies;
    const ids = this.replies.map((each) => each.tokens.map((token) => token.id).join());
    const verdict = !plain ? "" : ids[0] === ids[1]
      ? "The two replies are identical, token for token."
      : "THE TWO REPLIES DIFFER.";
    this.status.textContent =
      [before, reply.line, plain?.line, verdict].filter((text) => text).join(" ");
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

class Asker {
  constructor({ keyed, tokens }) {
    this.prompt = element("textarea", { required: true, value: "Why is the sky blue?" });
    this.tokens = element("input",
      { type: "number", min: 1, max: tokens, value: Math.min(tokens, 128), required: true });
    this.key = element("input", { type: "password", autocomplete: "off", required: keyed });
    this.send = element("button", { type: "submit" }, "Reply");
    this.stop = element("button", { type: "button", disabled: true }, "Stop");
    this.error = element("p", { role: "alert" });
    this.place = element("main");
    const field = (name, input) => element("label", {}, name, input);
    const row = element("div", {}, field("Most tokens", this.tokens),
      ...(keyed ? [field("API key", this.key)] : []), this.send, this.stop);
    this.form = element("form", {}, field("Prompt (Ctrl+Enter sends it)", this.prompt), row);
    this.form.addEventListener("submit", (event) => { event.preventDefault(); this.ask(); });
    this.form.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.form.requestSubmit();
    });
    this.stop.addEventListener("click", () => this.going?.abort());
    document.body.append(this.form, this.error, this.place);
  }

  async ask() {
    if (this.going) return;
    this.going = new AbortController();
    const view = new View(["With drafts", "Plain"]);
    this.place.replaceChildren(...view.parts);
    this.error.textContent = "";
    view.status.textContent = "The model replies.";
    this.stop.disabled = false;
    try {
      const model = (await (await this.fetch("v1/models")).json()).data[0].id;
      await this.stream(model, false, (round) => view.add(0, round));
      await this.stream(model, true, (round) => view.add(1, round));
      view.end("Done.");
    } catch (error) {
      view.status.textContent = "";
      this.error.textContent = this.going.signal.aborted ? "Stopped." : error.message;
    } finally {
      this.going = null;
      this.stop.disabled = true;
    }
  }

  async fetch(path, body) {
    const headers = { "Content-Type": "application/json", Authorization: `Bearer ${this.key.value}` };
    const answer = await fetch(path, { method: body ? "POST" : "GET", headers,
      body: body && JSON.stringify(body), signal: this.going.signal });
    if (!answer.ok) throw new Error((await answer.json()).error.message);
    return answer;
  }

  /** One reply after the other: two at once would share passes, and nothing would be drafted. */
  async stream(model, plain, take) {
    const answer = await this.fetch("v1/chat/completions", {
      model, plain, messages: [{ role: "user", content: this.prompt.value }],
      max_tokens: this.tokens.valueAsNumber, temperature: 0,
      stream: true, stream_options: { include_trace: true },
    });
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
