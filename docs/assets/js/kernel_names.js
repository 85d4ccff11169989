// Decodes kernel names in the browser, by the grammar that the page carries: the twin of kinetoscope/trace/kernel_grammar.py.
(() => {
  "use strict";

  const FIELDS = ["library", "operation", "arch", "dtype", "tile", "layout"];
  const MOST_WORDS = 12;
  const MOST_COLUMNS = 60;
  const NOT_KNOWN = "not known";

  /** Expressions as functions of a text and a place: the match that begins there, or null. */
  function expression(grammar, source) {
    const whole = source.replace(/@([a-z]+)/g, (_, word) => `(?:${grammar.words[word]})`);
    const regex = new RegExp(whole, "y");
    return (text, place) => {
      regex.lastIndex = place;
      return regex.exec(text);
    };
  }

  function compiled(grammar, family) {
    const { piece = "", gap = "[^A-Za-z0-9]+", end = "(?![A-Za-z0-9])", once = false } = family;
    const rules = family.rules.map((rule) => ({
      ...rule,
      match: expression(grammar, `(?:${rule.part})${rule.joined ? "" : end}`),
      states: (rule.state || "").split(" ").filter(Boolean),
    }));
    const states = new Set(["start", ...rules.map((rule) => rule.then).filter(Boolean)]);
    const inState = new Map();
    for (const state of states) {
      inState.set(state, rules.filter((rule) => !rule.states.length || rule.states.includes(state)));
    }
    return {
      defaults: family.defaults,
      match: expression(grammar, family.match),
      piece: piece ? expression(grammar, piece) : () => null,
      gap: expression(grammar, gap),
      once,
      inState,
    };
  }

  /** A template with its values; null when one outside brackets lacks. */
  function filled(grammar, template, values) {
    return placed(grammar, template.replace(/\[([^[\]]*)\]/g, (_, part) => placed(grammar, part, values) || ""), values);
  }

  function placed(grammar, template, values) {
    let lacks = false;
    const text = template.replace(/\{([a-z]+)(?:\|([a-z]+))?\}/g, (_, name, table) => {
      let value = Object.hasOwn(values, name) ? values[name] : null;
      if (value != null && table) {
        value = Object.hasOwn(grammar.tables[table], value) ? grammar.tables[table][value] : null;
      }
      lacks ||= value == null;
      return value;
    });
    return lacks ? null : text;
  }

  /** The operators in a list like `_unsafe_view_gelu_mul`, the longest first; none where they leave a rest. */
  function operators(known, text) {
    const words = text.split("_");
    const rest = [...words.map(() => null), []];
    for (let start = words.length - 1; start >= 0; start--) {
      for (let end = Math.min(words.length, start + MOST_WORDS); end > start; end--) {
        const name = words.slice(start, end).join("_");
        const tail = rest[end];
        if (tail && known.has(name) && (!tail.length || name < tail[0])) {
          rest[start] = [name, ...tail];
          break;
        }
      }
    }
    return rest[0] || [];
  }

  function read(grammar, family, text) {
    const fields = {};
    const fused = [];
    const tokens = [];
    const seen = new Set();
    const apply = (rule, found) => {
      const values = { ...found.groups };
      fused.push(...(rule.fuse || []));
      if (rule.operators) {
        const names = operators(grammar.known, filled(grammar, rule.operators, values) || "");
        fused.push(...names);
        values.operators = names.join(", ") || null;
      }
      for (const [field, template] of Object.entries(rule.set || {})) {
        const value = template === null ? null : filled(grammar, template, values);
        if (template === null || (value !== null && !(field in fields))) fields[field] = value;
      }
      if (rule.means) {
        const meaning = filled(grammar, rule.means, values);
        const basis = meaning ? rule.basis || "documented" : "unknown";
        tokens.push({ token: found[0], meaning: meaning || NOT_KNOWN, basis });
      }
    };
    let state = "start";
    for (let place = 0; place < text.length; ) {
      let found = null;
      const rule = family.inState.get(state).find((one) => (found = one.match(text, place)) && found[0]);
      if (rule) {
        const mark = `${rule.part} ${found[0]}`;
        if (!family.once || !seen.has(mark)) {
          seen.add(mark);
          state = rule.then || state;
          apply(rule, found);
        }
      } else if ((found = family.piece(text, place))) {
        tokens.push({ token: found[0], meaning: NOT_KNOWN, basis: "unknown" });
      } else {
        found = family.gap(text, place);
      }
      place += found ? found[0].length : 1;
    }
    if (fused.length) fields.fused = fused.join(" + ");
    for (const [field, template] of Object.entries(family.defaults)) {
      if (!(field in fields)) fields[field] = filled(grammar, template, fields) || null;
    }
    return { fields, fused, tokens };
  }

  function shortened(name) {
    const letters = [...name];
    return letters.length <= MOST_COLUMNS ? name : [...letters.slice(0, 40), "…", ...letters.slice(-19)].join("");
  }

  /** A decoder: name -> what `kinetoscope decode NAME --json` prints, and the short form beside it. */
  function decoder(grammar) {
    grammar.known = new Set(grammar.operators.split(" "));
    const families = grammar.families.map((family) => compiled(grammar, family));
    return (name) => {
      const text = [...name].slice(0, grammar.longest).join("");
      const family = families.find((one) => one.match(text, 0));
      const { fields, fused, tokens } = family ? read(grammar, family, text) : { fields: {}, fused: [], tokens: [] };
      const data = { name };
      for (const field of FIELDS) data[field] = fields[field] || null;
      data.library ||= "unknown";
      data.operation ||= "other";
      return { data: { ...data, fused, tokens }, short: shortened(fields.short || name) };
    };
  }

  const MARKS = { documented: "●", inferred: "◐", unknown: "○" };

  /** The fields of a decoded name, and a row for each token. */
  function explained({ fused, tokens, ...data }) {
    const facts = make("dl");
    for (const [field, value] of [...FIELDS.map((name) => [name, data[name]]), ["fused", fused.join(", ")]]) {
      facts.append(make("dt", {}, field), make("dd", {}, value || "–"));
    }
    if (!tokens.length) return [facts];
    const table = make("table");
    const head = table.createTHead().insertRow();
    const body = table.createTBody();
    for (const title of ["token", "meaning", "evidence"]) {
      head.append(make("th", { scope: "col" }, title));
    }
    for (const { token, meaning, basis } of tokens) {
      const row = body.insertRow();
      row.insertCell().append(make("code", {}, token));
      row.append(make("td", {}, meaning));
      row.insertCell().append(make("span", { className: `basis ${basis}` }, `${MARKS[basis]} ${basis}`));
    }
    const region = { className: "lab-table", tabIndex: 0, role: "region", ariaLabel: "Tokens of the name" };
    return [facts, make("div", region, table)];
  }

  const config = document.getElementById("__config");
  const root = config ? JSON.parse(config.textContent).base : ".";
  document.addEventListener("beforetoggle", ({ target: sheet }) => {
    if (!sheet.matches(".kernel-raw") || sheet.querySelector("a")) return;
    const href = `${root}/kernel_names/#decode=${encodeURIComponent(sheet.querySelector("code").textContent)}`;
    sheet.append(make("a", { href }, "Decode this name"));
  }, true);

  const source = document.getElementById("kernel-grammar");
  if (!source) return;
  const decode = decoder(JSON.parse(source.textContent));
  window.decodeKernelName = (name) => decode(name).data;
  const box = document.getElementById("kernel-decoder");
  if (!box) return;
  const input = box.querySelector("textarea");
  const refresh = () => {
    const name = input.value.trim();
    const { data, short } = decode(name);
    box.querySelector(".short").textContent = short;
    box.querySelector(".decoded").replaceChildren(...(name ? explained(data) : []));
  };
  const follow = () => {
    const name = new URLSearchParams(location.hash.slice(1)).get("decode");
    if (!name) return;
    input.value = name;
    refresh();
    box.scrollIntoView();
  };
  input.addEventListener("input", refresh);
  addEventListener("hashchange", follow);
  box.hidden = false;
  refresh();
  follow();
})();
