// What looking.py asks of a page. It stands beside axe-core in the page; problems are told as lines of text.
window.inspect = {
  /** What makes the page scroll sideways, or is cut off because nothing around it scrolls. */
  tooWide() {
    const page = document.scrollingElement;
    const content = document.querySelector(".md-content") ?? document.body;
    const framed = (element) =>
      element !== content && (getComputedStyle(element).overflowX !== "visible" || framed(element.parentElement));
    const wide = [...content.querySelectorAll("*")].filter((element) => {
      const { right, height } = element.getBoundingClientRect();
      return right > page.clientWidth + 1 && height && element.checkVisibility() && !framed(element.parentElement);
    });
    if (page.scrollWidth <= page.clientWidth && !wide.length) return [];
    const told = wide.slice(0, 3).map((element) => element.cloneNode().outerHTML.slice(0, 200));
    return [`${page.scrollWidth} px wide in a window of ${page.clientWidth} px: ${told.join(" ") || "not the content"}`];
  },

  /** What stands over an edge or over something else: digits of tables, code, the labels of charts. */
  async cut() {
    for (let frame = 0; frame < 3; frame += 1) await new Promise(requestAnimationFrame); // sizes are observed
    const seen = (selector) => [...document.querySelectorAll(selector)].filter((element) => element.checkVisibility());
    if (!document.querySelector(".md-content")) return []; // a report's tables scroll
    const name = (element) => element.closest("[data-fence]")?.dataset.fence ?? element.textContent.slice(0, 40);
    const judges = [
      [".lab-table", this.cutCells],
      [".md-content .highlight > pre > code", this.cutCode],
      ["figure.chart svg", this.badLabels],
    ];
    const judged = ([selector, judge]) => seen(selector).flatMap((one) => judge(one).map((text) => `${name(one)}: ${text}`));
    return judges.flatMap(judged);
  },

  cutCells(frame) {
    const box = frame.getBoundingClientRect();
    const edge = box.left + frame.clientWidth - parseFloat(frame.style.getPropertyValue("--fade") || 0);
    const range = document.createRange();
    const problems = [];
    for (const cell of frame.querySelectorAll("td")) {
      if (!/\d/.test(cell.textContent) || !cell.checkVisibility()) continue;
      range.selectNodeContents(cell);
      const { left, right } = range.getBoundingClientRect();
      if (left < edge - 1 && right > edge + 1) problems.push(`cut: ${cell.textContent.slice(0, 40)}`);
    }
    const heads = [...frame.querySelectorAll("thead tr > *")].map((head) => head.getBoundingClientRect());
    const hidden = heads.filter(({ right }) => right > box.left + frame.clientWidth + 1).length;
    const more = frame.previousElementSibling;
    const told = more?.matches(".more-columns:not([hidden])") ? parseInt(more.textContent, 10) : 0;
    if (hidden !== told) problems.push(`${hidden} columns out of sight, and ${told} told`);
    return problems.slice(0, 3);
  },

  cutCode(code) {
    const { right } = code.getBoundingClientRect();
    const button = code.parentElement.querySelector(".md-code__nav")?.getBoundingClientRect();
    const covered = button && button.left < right - parseFloat(getComputedStyle(code).paddingRight) - 1;
    return [...(code.scrollWidth > code.clientWidth + 1 ? ["code cut"] : []), ...(covered ? ["a button over code"] : [])];
  },

  badLabels(svg) {
    const labels = [...svg.querySelectorAll("text")].filter((label) => label.textContent.trim());
    const scale = svg.viewBox.baseVal.width ? svg.getBoundingClientRect().width / svg.viewBox.baseVal.width : 1;
    const small = labels.filter((label) => parseFloat(getComputedStyle(label).fontSize) * scale < 10.8);
    const boxes = labels.filter((label) => !label.hasAttribute("transform")).map((label) => [label, label.getBoundingClientRect()]);
    const problems = small.slice(0, 1).map((label) => `less than 11 px: ${label.textContent}`);
    boxes.forEach(([one, a], index) => {
      for (const [other, b] of boxes.slice(index + 1)) {
        const over = Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1;
        const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 0.35 * Math.min(a.height, b.height);
        if (over && high) problems.push(`${one.textContent} over ${other.textContent}`);
      }
    });
    return problems.slice(0, 3);
  },

  /** Lays out what is out of sight, and lets the page's scripts see it, as if a reader had come by everywhere. */
  async show() {
    const style = document.createElement("style");
    style.textContent = "* { content-visibility: visible !important }";
    document.head.append(style);
    for (let frame = 0; frame < 3; frame++) await new Promise(requestAnimationFrame);
  },

  /** Opens all folds, and waits for what they load. */
  async unfold() {
    for (const details of document.querySelectorAll("details")) details.open = true;
    const frame = () => new Promise(requestAnimationFrame);
    for (let frames = 0; frames < 600 && document.querySelector("details[open] > noscript"); frames++) await frame();
    for (let frames = 0; frames < 2; frames++) await frame();
  },

  /** Waits for what fades and moves, but not for what never ends, as the pulse of the theme's annotations. */
  async settled() {
    const ending = document.getAnimations().filter(({ effect }) => effect.getTiming().iterations !== Infinity);
    await Promise.allSettled(ending.map((animation) => animation.finished));
  },

  /**
   * Leaves what the theme puts around a page's content. The page is short then and jumps to its top, so the header's
   * title changes: at once, not half faded while axe-core looks at it.
   */
  removeContent() {
    for (const topic of document.querySelectorAll(".md-header__topic")) topic.style.transition = "none";
    document.querySelector(".md-content").replaceChildren();
  },

  /** Marks an example of each look that is not judged yet. Returns all looks, and whether one is marked. */
  markLooks(judged) {
    const looks = this.looks();
    const known = new Set(judged);
    const unjudged = [...looks].filter(([look]) => !known.has(look));
    for (const mark of ["look", "link"]) {
      for (const element of document.querySelectorAll(`[data-${mark}]`)) delete element.dataset[mark];
    }
    for (const [, { mark, ends }] of unjudged) for (const element of ends) element.dataset[mark] = "";
    return { looks: [...looks.keys()], areNew: unjudged.length > 0 };
  },

  /** The problems that axe-core finds: by its rules on the colors of what is marked, by all others, or by both. */
  async runAxe(ofColors, others) {
    const why = ({ any, all, none }) => [...any, ...all, ...none].map((check) => check.message).join("; ");
    const selectors = { "color-contrast": "[data-look]", "link-in-text-block": "[data-link]" };
    axe.configure({ rules: Object.entries(selectors).map(([id, selector]) => ({ id, selector, enabled: ofColors })) });
    const only = others ? {} : { runOnly: Object.keys(selectors) };
    const { violations } = await axe.run(document, { resultTypes: ["violations"], ...only });
    const found = new Map();
    for (const { id, help, nodes } of violations) {
      for (const node of nodes) {
        const problem = `${id}: ${help}. ${why(node)}`;
        const place = node.target.join(" ").replaceAll(/\[data-(?:look|link)=""\]/g, "");
        found.set(problem, [...(found.get(problem) ?? []), place]);
      }
    }
    return [...found].map(([problem, places]) => {
      const more = places.length > 3 ? ` and ${places.length - 3} more` : "";
      return `${problem}. At ${places.slice(0, 3).join(", ")}${more}`;
    });
  },

  /**
   * For each look, a number, the first and the last visible element that has it and holds text. Elements look alike
   * when they have the same color and size of type, on the same backgrounds: their contrast is the same, on whatever
   * page, and to compute it for every cell of every table takes most of axe-core's time. Two, because the page's header
   * may lie over one of them. Links have a second look: how they are set off from the text around them, if there is any.
   */
  looks() {
    const number = (text) => {
      let [one, other] = [0xdeadbeef, 0x41c6ce57];
      for (let place = 0; place < text.length; place++) {
        one = Math.imul(one ^ text.charCodeAt(place), 2654435761);
        other = Math.imul(other ^ text.charCodeAt(place), 1597334677);
      }
      return 2 ** 21 * (one >>> 0) + (other >>> 11);
    };
    const own = ["color", "fontSize", "fontWeight", "textShadow"];
    const behind = ["backgroundColor", "backgroundImage", "opacity"];
    const ofLinks = ["textDecorationLine", "borderBottomWidth", "borderBottomStyle", "fontStyle", "fontFamily"];
    const styles = (element, names) => {
      const style = getComputedStyle(element);
      return names.map((name) => style[name]).join("|");
    };
    const known = new Map();
    const ground = (element) => {
      if (!element) return 0;
      if (!known.has(element)) {
        const [parents, layer] = [ground(element.parentElement), styles(element, behind)];
        known.set(element, layer === "rgba(0, 0, 0, 0)|none|1" ? parents : number(`${parents}|${layer}`));
      }
      return known.get(element);
    };
    const look = (element) => number(`${ground(element)}|${styles(element, own)}`);
    const lookOfLink = (link) => {
      let block = link;
      while (getComputedStyle(block).display.startsWith("inline")) block = block.parentElement;
      const inText = block.textContent.trim() !== link.textContent.trim();
      return number([link, block].map((element) => `${look(element)}|${styles(element, ofLinks)}`).join() + inText);
    };
    const found = new Map();
    const note = (look, mark, element) => {
      const [first] = found.get(look)?.ends ?? [element];
      found.set(look, { mark, ends: [first, element] });
    };
    for (const element of document.body.querySelectorAll("*")) {
      const text = [...element.childNodes].map((node) => (node.nodeType === Node.TEXT_NODE ? node.data : "")).join("");
      const isLink = element.matches("a[href]");
      const judged = /[\p{L}\p{N}]{2}/u.test(text); // axe-core does not judge single signs
      if (!(judged || isLink) || !element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
      if (judged) note(look(element), "look", element);
      if (isLink) note(lookOfLink(element), "link", element);
    }
    return found;
  },
};
