// Only this script and the library run, by their digests. Expressions of the specification, which may
// come from anybody, are interpreted (`ast`) and never compiled; its links lead nowhere.
const spec = JSON.parse(document.getElementById("spec").textContent);
// A chart of one view takes the size of the window that shows it, within the limits of the style sheet.
if (spec.mark || spec.layer) {
  for (const side of ["width", "height"]) if (typeof spec[side] === "number") spec[side] = "container";
}
const refuse = () => Promise.reject(new Error("A chart loads nothing."));
const sanitize = (href) => (/^data:image\//.test(href) ? Promise.resolve({ href }) : refuse());
const loader = { load: refuse, http: refuse, file: refuse, sanitize };
const actions = { export: true, source: false, compiled: false, editor: false };
vegaEmbed("#chart", spec, { renderer: "svg", ast: true, loader, actions }).catch(console.error);
