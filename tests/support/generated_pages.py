"""Small pages with everything that a person can act on, in many surroundings, and their oracle.

Each control carries a mark of its own (`data-mark`), which is its text, title or label as well. The
oracle knows by tags, roles, listeners, cursors and visibility which of them can be acted on; it
shares nothing with the code that it judges.
"""

import re

KINDS = {
    "native": """
        <button @>%</button> <a href="#x" @>%</a> <input @ placeholder="%">
        <label><input @ type="checkbox"> %</label> <select @ aria-label="%"><option>a</select>
        <textarea @ title="%"></textarea> <details><summary @>%</summary>more</details>
        <input @ type="submit" value="%">""",
    "roles": """
        <div role="button" tabindex="0" @>%</div> <span role="link" tabindex="0" @>%</span>
        <div role="checkbox" aria-checked="false" @>%</div> <div @ role="switch" aria-label="%">o</div>
        <div role="tablist"><div role="tab" @>%</div><div role="tab" @>%</div></div>
        <ul role="menu"><li role="menuitem" @>%</li><li role="menuitem" @>%</li></ul>
        <div role="listbox"><div role="option" @>%</div></div> <div role="treeitem" @>%</div>""",
    "listeners": """
        <div onclick="1" @>%</div> <span onmousedown="1" @>%</span> <p data-on="click" @>%</p>
        <div data-on="pointerdown" @>%</div> <b data-on="dblclick" @>%</b>
        <i data-on="contextmenu" @>%</i> <div data-on="touchstart" @>%</div>
        <ul data-on="click" data-delegates><li @>%</li><li @>%</li><li @>%</li></ul>
        <svg width="20" height="20"><rect @ width="20" height="20" data-on="click" aria-label="%"/></svg>""",
    "cursors": """
        <span style="cursor:pointer" @>%</span> <img @ alt="%" style="cursor:pointer; width:20px; height:20px">
        <div><em style="cursor:pointer" @>%</em> beside <em style="cursor:pointer" @>%</em></div>
        <div style="cursor:pointer" @><p>A card %</p><p>of two lines</p></div>
        <span @ style="cursor:pointer; display:inline-block" title="%"><svg width="9" height="9"></svg></span>""",
    "icons": """
        <button @><svg width="9" height="9"><title>%</title></svg></button>
        <button @ title="%"><i class="fa fa-trash"></i></button> <a @ href="#y"><img alt="%" width="9" height="9"></a>
        <button @ aria-label="%">×</button> <i @ class="icon" onclick="1" title="%">·</i>
        <button @><span class="unseen">%</span></button> <button @ style="width:20px; height:20px"><img title="%" width="9" height="9"></button>""",
    "grids": """
        <div role="grid"><div role="row"><div role="gridcell" @>%</div><div role="gridcell" @>%</div></div></div>
        <div data-on="mousedown" data-cells style="display:inline-block"><table><tr><td @>%</td><td @>%</td></tr></table></div>
        <div><span class="day" @>%</span><span class="day" @>%</span><span class="day" @>%</span></div>
        <table role="treegrid"><tr><th @>%</th></tr></table>""",
    "nested": """
        <div onclick="1" @>A card % <button @>%</button> <a href="#z" @>%</a></div>
        <label @><input type="radio" style="position:absolute; opacity:0; pointer-events:none">%</label>
        <a href="#q" @>% <button @>%</button></a>
        <div @ role="button" tabindex="0" aria-label="%"><span>o</span> <button @>%</button></div>""",
    "fields": """
        <div @ contenteditable title="%">text</div> <input @ type="date" title="%"> <input @ type="range" title="%">
        <div @ role="textbox" tabindex="0" aria-label="%"></div> <div @ role="slider" tabindex="0" aria-label="%">o</div>
        <input @ type="file" title="%"> <input @ type="color" title="%"> <input @ list="l" title="%"><datalist id="l"><option>a</datalist>
        <input @ type="password" title="%">""",
}  # fmt: skip
SURROUNDINGS = {
    "plain": "<div id=here>CONTENT</div>",
    "open root": "<div id=host data-root=open></div>",
    "closed root": "<div id=host data-root=closed></div>",
    "frame": "<iframe width=600 height=500 srcdoc=\"FRAME\"></iframe>",
    "scrolled area": "<div id=area style='height:120px; overflow:auto'>CONTENT<p style='height:300px'>end</p></div>",
    "floats": "<div style='height:0'><div style='float:left; width:500px'>CONTENT</div></div>",
    "right to left": "<div dir=rtl style='transform:translateX(-20px)'>CONTENT</div>",
    "vertical": "<div style='writing-mode:vertical-rl; height:400px'>CONTENT</div>",
    "placed": "<div style='position:fixed; top:40px; left:40px; width:500px'>CONTENT</div>",
}  # fmt: skip
_STYLE = """
    .unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%) }
    .day { display: inline-block; width: 40px; cursor: pointer }"""
ORACLE = """
    const listened = new WeakSet(), roots = [document];
    const add = EventTarget.prototype.addEventListener, attach = Element.prototype.attachShadow;
    EventTarget.prototype.addEventListener = function (...given) { listened.add(this); return add.apply(this, given); };
    Element.prototype.attachShadow = function (how) { const root = attach.call(this, how); roots.push(root); return root; };
    const ROLES = 'button link checkbox switch tab menuitem option treeitem gridcell textbox slider'.split(' ');
    const TAGS = 'button,a[href],input,select,textarea,summary,[contenteditable],[onclick],[onmousedown],[tabindex="0"]';
    const usable = (el) =>
      el.matches(TAGS) || ROLES.includes(el.getAttribute('role')) || listened.has(el) ||
      getComputedStyle(el).cursor === 'pointer' || !!el.closest('[data-delegates],[data-cells],[role=treegrid]') || !!el.control;
    const shown = (el) => {
      const box = el.getBoundingClientRect();
      return el.checkVisibility({ visibilityProperty: true, opacityProperty: true }) && box.width > 1 && box.height > 1;
    };
    window.oracle = () => roots.flatMap((root) => [...root.querySelectorAll('[data-mark]')])
      .filter((el) => usable(el) && shown(el)).map((el) => el.dataset.mark);
    window.listen = (root) => root.querySelectorAll('[data-on]').forEach((el) => el.addEventListener(el.dataset.on, () => {}));
"""  # fmt: skip


def generated_page(kind: str, surrounding: str) -> str:
    """Return a page with all controls of a kind within a surrounding."""
    content = _marked(KINDS[kind])
    begin = f"<!doctype html><meta charset=utf-8><title>{kind}</title><style>{_STYLE}</style>"
    whole = f"{begin}<script>{ORACLE}</script>"
    inner = f"{whole}<body>{content}<script>listen(document)</script>".replace('"', "&quot;")
    placed = SURROUNDINGS[surrounding].replace("CONTENT", content).replace("FRAME", inner)
    template = f"<template><style>{_STYLE}</style>{content}</template>"
    return f"""{whole}<body>{template}{placed}<script>
        const host = document.querySelector('#host'), area = document.querySelector('#area');
        if (host) {{
          const root = host.attachShadow({{ mode: host.dataset.root }});
          root.append(document.querySelector('template').content.cloneNode(true));
          listen(root);
        }}
        listen(document);
        if (area) area.scrollTop = 60;
    </script>"""


def _marked(pieces: str) -> str:
    """Write the marks: `@` is where the attributes of the next control go, `%` its mark as text."""
    number = 0
    parts: list[str] = []
    for part in re.split("([@%])", pieces):
        number += part == "@"
        mark = f"mark{number}x"
        parts.append({"@": f'data-mark="{mark}"', "%": mark}.get(part, part))
    return "".join(parts)
