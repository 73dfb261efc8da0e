/** One file, shown: pictures, Markdown, tables, text, and HTML in a frame; scripts only of our own charts. */

import * as api from "../api.js";
import { button, fill, h, icon } from "../dom.js";
import { bytes } from "../format.js";
import { colour } from "../highlight.js";
import { t } from "../i18n.js";
import { markdown } from "../markdown.js";

const MOST_TEXT = 2_000_000;
const SHOWN_TEXT = 400_000;
const SHOWN_ROWS = 500;

/** Build the dialog; `open(file, files)` shows a file; `files` is what `markdown` takes. */
export function createPreview() {
  const title = h("h2", { id: "preview-title" });
  const facts = h("span.muted", {});
  const body = h("div.preview-body", { tabIndex: 0, role: "group", aria: { labelledby: "preview-title" } });
  const tools = h("div.buttons", {});
  const dialog = h("dialog.preview-dialog", { aria: { labelledby: "preview-title" } },
    h("header", {}, h("div.grow", {}, title, facts), tools,
      button(t("Close"), () => dialog.close(), { iconName: "cross" })),
    body);
  dialog.addEventListener("close", () => fill(body));
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });

  async function showText(file, draw) {
    if (file.size > MOST_TEXT) {
      fill(body, h("p.empty", {}, t("This file is too large to be shown here. Download it.")));
      return;
    }
    try {
      const response = await fetch(file.url);
      if (!response.ok) throw new Error(t("The server answered with {status}.", { status: response.status }));
      fill(body, draw(await response.text()));
    } catch (error) {
      failed(error);
    }
  }

  /** Show HTML: the server says by its policy whether it is a chart that it made, whose scripts run. */
  async function showPage(file) {
    try {
      const { ok, status, headers } = await fetch(file.url, { method: "HEAD" });
      if (!ok) throw new Error(t("The server answered with {status}.", { status }));
      const ours = /^sandbox allow-scripts;/.test(headers.get("Content-Security-Policy"));
      const allow = async () => {
        try {
          fill(body, frame(await api.allowScripts(file), file, true));
        } catch (error) {
          failed(error);
        }
      };
      fill(body, !ours && h("div.scripts-off", {}, h("p", {}, t("This page is shown without its scripts. If they run, they can send what it holds to anybody on the internet.")),
        button(t("Run its scripts"), allow, {})), frame(file.url, file, ours));
    } catch (error) {
      failed(error);
    }
  }

  const frame = (src, file, scripts) =>
    h("iframe", { sandbox: scripts ? "allow-scripts" : "", src, title: file.path, referrerPolicy: "no-referrer" });
  const failed = (error) =>
    fill(body, h("p.error", {}, `${t("This file cannot be shown. It may have been removed.")} ${error.message}`));

  function asText(text, file) {
    const left = text.length - SHOWN_TEXT;
    if (left <= 0) return colour(h("pre.code.plain", {}, text), text, file.path);
    return h("pre.code.plain", {}, `${text.slice(0, SHOWN_TEXT)}\n${t("… {n} more characters", { n: left })}`);
  }

  return {
    element: dialog,
    async open(file, files) {
      title.textContent = file.path;
      facts.textContent = `${bytes(file.size)} · ${file.media_type}`;
      fill(tools, h("a.btn", { href: file.download, download: file.path.split("/").pop() }, icon("download"), h("span", {}, t("Download"))));
      fill(body, h("p.empty", {}, t("Loading…")));
      if (!dialog.open) dialog.showModal();
      const views = {
        image: () => fill(body, h("img", { src: file.url, alt: file.path })),
        html: () => showPage(file),
        audio: () => fill(body, h("audio", { controls: true, src: file.url })),
        video: () => fill(body, h("video", { controls: true, src: file.url })),
        markdown: () => showText(file, (text) => markdown(text, files)),
        text: () => showText(file, (text) => (isTable(file) ? table(text, file) : asText(text, file))),
      };
      await (views[file.view] ?? nothing)();
    },
  };

  function nothing() {
    fill(body, h("p.empty", {}, t("This kind of file is not shown here. Download it.")));
  }
}

const isTable = (file) => /\.(csv|tsv)$/i.test(file.path);

function table(text, file) {
  const rows = separated(text, file.path.toLowerCase().endsWith(".tsv") ? "\t" : ",", SHOWN_ROWS + 1);
  const [head = [], ...rest] = rows;
  const more = text.trim().split("\n").length - rows.length;
  return h("div.table", { tabIndex: 0, role: "group", aria: { label: t("Table") } },
    h("table", {}, h("thead", {}, h("tr", {}, head.map((cell) => h("th", { scope: "col" }, cell)))),
      h("tbody", {}, rest.map((row) => h("tr", {}, row.map((cell) => h("td", {}, cell)))))),
    more > 0 && h("p.muted", {}, t("… {n} more lines", { n: more })));
}

/** Read separated values with quotes, as far as `most` rows. */
export function separated(text, separator, most) {
  const rows = [];
  let row = [];
  let cell = "";
  let quoted = false;
  const endCell = () => {
    row.push(cell);
    cell = "";
  };
  const endRow = () => {
    endCell();
    rows.push(row);
    row = [];
  };
  for (let i = 0; i < text.length && rows.length < most; i += 1) {
    const sign = text[i];
    if (quoted) {
      if (sign !== '"') cell += sign;
      else if (text[i + 1] === '"') {
        cell += '"';
        i += 1;
      } else quoted = false;
    } else if (sign === '"' && cell === "") quoted = true;
    else if (sign === separator) endCell();
    else if (sign === "\n") endRow();
    else if (sign !== "\r") cell += sign;
  }
  if ((cell || row.length) && rows.length < most) endRow();
  return rows;
}
