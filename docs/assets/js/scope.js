// What the theme's partials/javascripts/base.html puts into each page, as a file: inline, its text would differ from page
// to page, and the Content-Security-Policy names inline scripts by their hash.
__md_scope=new URL("../..",document.currentScript.src),__md_hash=e=>[...e].reduce(((e,_)=>(e<<5)-e+_.charCodeAt(0)),0),__md_get=(e,_=localStorage,t=__md_scope)=>JSON.parse(_.getItem(t.pathname+"."+e)),__md_set=(e,_,t=localStorage,a=__md_scope)=>{try{t.setItem(a.pathname+"."+e,JSON.stringify(_))}catch(e){}}
