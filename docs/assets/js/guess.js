// Guess boxes: a form under each folded question. What is committed is kept on this device and shown beside the answer;
// a line below the provenance, one at the page's end and a number in the navigation count guesses and close ones.
(() => {
  const page = location.pathname.replace(/index\.html$/, "");

  // The first step of a prediction: what the page has given the means to compute is checked while it is written, and a
  // near miss gets its reason. Values within 3 % are the same.
  const computing = ({ question, answer, text, why, hint, scale, label, near }, prediction) => {
    const id = `${prediction}-compute`;
    const input = make("input", { type: "number", id, min: 0, step: "any" });
    const name = make("label", { id: `${id}-name`, htmlFor: id }, `1. ${question}`);
    const unit = make("span", { id: `${id}-unit` }, label), said = make("output", { role: "status" }, hint);
    input.setAttribute("aria-labelledby", `${name.id} ${unit.id}`);
    const off = (value) => Math.abs(Math.log(input.value * scale / value));
    const check = () => {
      const [best, reason] = [[answer, ""], ...near].reduce((a, b) => (off(b[0]) < off(a[0]) ? b : a));
      const isRight = input.value > 0 && off(best) < 0.03 && !reason;
      const isUnit = [3, 6].some((digits) => Math.abs(off(answer) / Math.LN10 - digits) < 0.02);
      said.className = isRight ? "right" : "";
      if (!(input.value > 0)) said.textContent = hint;
      else if (isRight) said.textContent = `✓ ${text}. ${why}`;
      else if (off(best) < 0.03) said.textContent = `Near: ${reason}`;
      else said.textContent = isUnit ? "The digits are right, but the unit is wrong." : `Not yet. ${hint}`;
    };
    input.addEventListener("input", check);
    input.addEventListener("keydown", (event) => event.key === "Enter" && event.preventDefault()); // commits nothing
    return make("div", { className: "compute" }, name, make("span", {}, input, " ", unit), said);
  };

  // Reads what was said, or keeps it, or with null forgets it.
  const kept = (key, said) => {
    if (said !== undefined) return stored(key, said && JSON.stringify(said));
    try {
      return JSON.parse(stored(key));
    } catch {
      return null; // not written here
    }
  };

  // What a form asks: its elements, and a function that reads the guess from them as a value and as text.
  const fields = {
    number({ scale, exact, label, suffix, compute }, id, question) {
      const input = make("input", { type: "number", id, min: 0, step: exact ? 1 : "any", required: true });
      const name = make("label", { id: `${id}-name`, htmlFor: id }, "Your guess");
      const unit = make("span", { id: `${id}-unit` }, label);
      input.setAttribute("aria-labelledby", `${question} ${name.id} ${unit.id}`);
      if (compute) name.textContent = "2. Your prediction";
      return [[name, input, unit], () => [input.value * scale, input.value + suffix], compute && computing(compute, id)];
    },

    choice({ options }, id) {
      const radios = options.map(() => make("input", { type: "radio", name: id, required: true }));
      const labels = radios.map((radio, i) => make("label", {}, radio, ` ${options[i][1]}`));
      return [labels, () => options[radios.findIndex((radio) => radio.checked)]];
    },

    order({ answer, options }) {
      const selects = answer.map((_, i) => {
        const offered = ["", ...options].map((option) => new Option(option || "choose", option));
        return make("select", { required: true, ariaLabel: `Place ${i + 1}` }, ...offered);
      });
      const chosen = () => selects.map((select) => select.value);
      return [[make("ol", {}, ...selects.map((select) => make("li", {}, select)))], () => [chosen(), chosen().join(", ")]];
    },
  };

  // How far off a guess is, in words; the words that count as close.
  const CLOSE = ["Exactly.", "Close.", "Right."];
  const off = {
    number({ answer, exact }, value) {
      const high = value > answer;
      if (value === answer) return "Exactly.";
      if (exact) return `${Math.abs(value - answer).toLocaleString("en")} too ${high ? "many" : "few"}.`;
      const times = high ? value / answer : answer / value;
      if (times <= 1.25) return "Close.";
      const shown = times.toLocaleString("en", { maximumFractionDigits: times < 10 ? 1 : 0 });
      return `${shown} times too ${high ? "high" : "low"}${times <= 2 ? ", but the right order" : ""}.`;
    },

    choice: ({ answer }, value) => (value === answer ? "Right." : "Wrong."),

    order({ answer }, value) {
      const right = answer.filter((item, i) => item === value[i]).length;
      return right === answer.length ? "Right." : `${right} of ${answer.length} are in the right place.`;
    },
  };

  // The guess becomes a property of its answers, which curtain.js draws into the figures.
  const show = (answer, said) => {
    const guess = JSON.parse(answer.dataset.guess), judged = said ? off[guess.kind](guess, said.value) : "";
    answer.querySelector(".guess-said").textContent = said ? `You said ${said.text}. ` : "";
    answer.querySelector(".guess-off").textContent = said ? ` ${judged}` : "";
    answer.classList.toggle("guessed", Boolean(said));
    Object.assign(answer, { said, isClose: CLOSE.includes(judged) });
  };

  // Every box of the page: the answers of one fence, one for each device.
  const asked = [];
  const isShown = (answer) => !answer.closest(".device[hidden]");
  const lines = [];
  const count = () => {
    const answers = asked.map(({ of }) => of.find(isShown) ?? of[0]);
    const said = answers.filter((answer) => answer.said).length, close = answers.filter((answer) => answer.isClose).length;
    const some = `${said} of ${asked.length}`;
    for (const { text, forget } of lines) {
      text.textContent = said ? `You guessed ${some} answers. Close guesses: ${close}.` : `${asked.length} question${asked.length > 1 ? "s" : ""} to guess on this page.`;
      if (forget) forget.hidden = !said;
    }
    kept(`score ${page}`, said ? some : null);
    for (const link of document.querySelectorAll(".md-nav--primary a.md-nav__link[href]")) {
      const score = kept(`score ${new URL(link.href).pathname.replace(/index\.html$/, "")}`);
      link.querySelector(".guess-count")?.remove();
      if (typeof score === "string") link.append(make("span", { className: "guess-count", title: "guessed" }, score));
    }
  };

  const enhance = (details, number) => {
    const summary = details.querySelector("summary");
    summary.id ||= `guess-question-${number + 1}`;
    const answers = [...details.querySelectorAll(".guess")];
    const fenceOf = (answer) => answer.closest("[data-fence]").dataset.fence;
    const form = make("form", { className: "guess-form" });

    // A fence has an answer for each recorded device: the first one makes the field, each tells how far off it was.
    const boxes = [...new Set(answers.map(fenceOf))].map((fence) => {
      const of = answers.filter((answer) => fenceOf(answer) === fence);
      const guess = JSON.parse(of[0].dataset.guess);
      const [elements, read, computed] = fields[guess.kind](guess, `${fence}-guess`, summary.id);
      if (computed) form.append(computed);
      form.append(make("fieldset", {}, ...elements));
      form.lastChild.setAttribute("aria-labelledby", summary.id);
      return { fence, of, read, kind: guess.kind };
    });

    asked.push(...boxes);
    const changed = () => {
      count();
      details.dispatchEvent(new Event("guess"));
    };

    const commit = ({ fence, of, read, kind }) => {
      const [value, text] = read();
      kept(`guess ${page}#${fence}`, { kind, value, text });
      of.forEach((answer) => show(answer, { value, text }));
    };
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      boxes.forEach(commit);
      details.open = true;
      changed();
      const lines = answers.map((answer) => answer.querySelector("p"));
      (lines.find((line) => line.getClientRects().length) ?? summary).focus(); // of the device whose tab is chosen
    });
    const forget = () => {
      boxes.forEach(({ fence }) => kept(`guess ${page}#${fence}`, null));
      answers.forEach((answer) => show(answer));
      form.reset();
      form.querySelectorAll(".compute input").forEach((input) => input.dispatchEvent(new Event("input")));
      details.open = false;
      changed();
    };
    details.addEventListener("forget", forget);
    const again = () => {
      forget();
      form.querySelector("input, select").focus();
    };
    const skip = () => {
      details.open = true;
      summary.focus();
    };

    const button = (text, onclick) => make("button", { type: "button", onclick }, text);
    form.append(make("div", {}, make("button", {}, "Commit"), button("Just show me", skip)));
    for (const answer of answers) {
      const line = answer.querySelector("p");
      Object.assign(line, { role: "status", tabIndex: -1 });
      answer.append(button("Guess again", again));
    }
    details.after(form); // shown by the style sheet as long as the answer is folded

    for (const { fence, of, kind } of boxes) {
      const said = kept(`guess ${page}#${fence}`);
      if (said?.kind !== kind || said.value == null) continue;
      of.forEach((answer) => show(answer, said));
      details.open = true;
    }
  };

  const questions = [...new Set([...document.querySelectorAll("details .guess")].map((guess) => guess.closest("details")))];
  questions.forEach(enhance);

  // The line at the top also takes the switch of curtain.js; the one at the end forgets.
  const line = (name, ...children) => {
    const text = make("span", {}), bar = make("p", { className: name }, text, ...children);
    lines.push({ text, forget: children[0] });
    return bar;
  };
  const forgetAll = () => questions.forEach((details) => details.dispatchEvent(new Event("forget")));
  if (questions.length) {
    const provenance = document.querySelector('.lab[data-fence$="-provenance"]');
    if (provenance) provenance.after(line("guess-bar"));
    else questions[0].before(line("guess-bar"));
    const forget = make("button", { type: "button", onclick: forgetAll }, "Forget my guesses on this page");
    questions[0].closest("article").append(line("guess-bar", forget));
  }
  document.addEventListener("device", count);
  count();
})();
