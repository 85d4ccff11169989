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
