// What a page holds back: the text of a <noscript>, or, in a built site, a part of the file that its link names (see
// snippets/lab/tools/set_aside.py), which is loaded once. Before the scripts that put it in place.
{
  const files = new Map(), parse = (text) => new DOMParser().parseFromString(text, "text/html");
  const load = async (file) => {
    const reply = await fetch(file);
    if (!reply.ok) throw new Error(`${file}: ${reply.status}`);
    return parse(await reply.text());
  };
  /** Calls `use` with an element that holds what was held back: at once where it is in the page; only its link if lost. */
  window.heldBack = ({ textContent }, use) => {
    const { body } = parse(textContent), link = body.querySelector('p:only-child > a[href^="set_aside.html#"]');
    if (!link) return use(body);
    const [file, part] = link.getAttribute("href").split("#");
    if (!files.has(file)) files.set(file, load(file));
    files.get(file).then((page) => page.querySelector(`#${part} > div`), () => null).then((found) => use(found ?? body));
  };
}
