// What the other scripts use; loaded before them.
/** A new element. */
window.make = (tag, properties, ...children) => {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
};

/** Reads what is kept on this device, or keeps a text, or with null forgets it. Without storage there is nothing to read. */
window.stored = (key, text) => {
  try {
    if (text === undefined) return localStorage.getItem(key);
    if (text === null) localStorage.removeItem(key);
    else localStorage.setItem(key, text);
  } catch {}
  return null;
};

// What a page holds back: the text of a <noscript>, or a part of the file that its link names (tools/set_aside.py).
{
  const files = new Map(), parse = (text) => new DOMParser().parseFromString(text, "text/html");
  /** Calls `use` with an element that holds it: at once if it is in the page; with its link if the file lacks it. */
  window.heldBack = ({ textContent }, use) => {
    const { body } = parse(textContent), link = body.querySelector('p:only-child > a[href^="set_aside.html#"]');
    if (!link) return use(body);
    const [file, part] = link.getAttribute("href").split("#");
    if (!files.has(file)) files.set(file, fetch(file).then((reply) => reply.text()).then(parse));
    files.get(file).then((page) => page.querySelector(`#${part} > div`)).catch(() => null).then((found) => use(found ?? body));
  };
}
