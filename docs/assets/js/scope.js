// What must run before the theme's script. First: the theme loads its search index, by far the largest file, with every
// page. Here its request waits until a reader turns to the search, or comes from it (?q=, ?h=).
{
  const { open, send } = XMLHttpRequest.prototype;
  const asked = new Promise((resolve) => {
    if (/[?&][qh]=/.test(location.search)) resolve();
    const notice = ({ target }) => target.closest?.(".md-search, [for=__search]") && resolve();
    for (const type of ["focusin", "pointerover"]) document.addEventListener(type, notice);
  });
  const waiting = new WeakSet();
  XMLHttpRequest.prototype.open = function (method, url, ...rest) {
    if (/search_index\.json$/.test(url)) waiting.add(this);
    return open.call(this, method, url, ...rest);
  };
  XMLHttpRequest.prototype.send = function (...body) {
    if (!waiting.has(this)) return send.apply(this, body);
    asked.then(() => send.apply(this, body));
  };
}

// Then: what the theme's partials/javascripts/base.html puts into each page, as a file: inline, its text would differ from
// page to page, and the Content-Security-Policy names inline scripts by their hash.
__md_scope=new URL("../..",document.currentScript.src),__md_hash=e=>[...e].reduce(((e,_)=>(e<<5)-e+_.charCodeAt(0)),0),__md_get=(e,_=localStorage,t=__md_scope)=>JSON.parse(_.getItem(t.pathname+"."+e)),__md_set=(e,_,t=localStorage,a=__md_scope)=>{try{t.setItem(a.pathname+"."+e,JSON.stringify(_))}catch(e){}}
