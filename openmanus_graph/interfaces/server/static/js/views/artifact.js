/** The content of a file: pictures, Markdown, tables, text, and HTML in a frame; scripts only of our own charts. */

import * as api from "../api.js";
import { button, fill, h, icon } from "../dom.js";
import { bytes } from "../format.js";
import { colour } from "../highlight.js";
import { t } from "../i18n.js";
import { markdown } from "../markdown.js";

const MOST_TEXT = 2_000_000;
const MOST_PAGE = 32_000_000; // the server sends larger ones as downloads only
const MOST_PICTURE = 20_000_000;
const SHOWN_TEXT = 400_000;
const WHOLE = { rows: 500, columns: 60 };
const BRIEF = { rows: 6, columns: 8 }; // of a table in the conversation
const INLINE = ["image", "html", "table"];
const MOST_INLINE = 4;

/**
 * Show a file in an element.
 *
 * @param {HTMLElement} body
 * @param {object} file  As the server lists it; `text` has its content where there is no server.
 * @param {object} files  What `markdown` takes, for the files that this one names.
 * @param {object} [size]  How much of a table is shown.
 */
export async function showFile(body, file, files, size = WHOLE) {
  const failed = (error) =>
    fill(body, h("p.error", {}, `${t("This file cannot be shown. It may have been removed.")} ${error.message}`));
  const tooLarge = () => fill(body, h("p.empty", {}, t("This file is too large to be shown here. Download it.")));
  const showText = async (draw) => {
    const text = file.text ?? await textOf(file);
    fill(body, file.size > MOST_TEXT && h("p.muted", {}, t("Only the first {n} of {all} are shown. Download the file for the rest.", { n: bytes(MOST_TEXT), all: bytes(file.size) })), draw(text));
  };
  const views = {
    image: () => (file.size > MOST_PICTURE ? tooLarge() : fill(body, h("img", { src: file.url, alt: file.path, loading: "lazy" }))),
    html: () => (file.size > MOST_PAGE ? tooLarge() : file.text === undefined ? showPage(body, file, failed, size === BRIEF) : fill(body, frame(file.url, file, false))),
    audio: () => fill(body, h("audio", { controls: true, src: file.url })),
    video: () => fill(body, h("video", { controls: true, src: file.url })),
    ...(file.url?.startsWith("/app/files/") && { pdf: () => showPdf(body, file, 1) }),
    markdown: () => showText((text) => (text.length > SHOWN_TEXT ? asText(text, file) : markdown(text, files))),
    table: () => showText((text) => table(text, file, size)),
    text: () => showText((text) => asText(text, file)),
  };
  try {
    await (views[viewOf(file)] ?? (() => fill(body, h("p.empty", {}, t("This kind of file is not shown here. Download it.")))))();
  } catch (error) {
    failed(error);
  }
}

/** Return the files of a result that are shown in the conversation itself, a chart once. */
export function inlineFiles(files) {
  const stem = (file) => file.path.replace(/\.\w+$/, "");
  const fits = files.filter((file) => INLINE.includes(viewOf(file))
    && file.size <= (viewOf(file) === "table" ? MOST_TEXT : MOST_PICTURE));
  const pages = new Set(fits.filter((file) => viewOf(file) === "html").map(stem));
  const pictures = new Set(fits.filter((file) => viewOf(file) === "image").map(stem));
  const rank = (file) => INLINE.indexOf(viewOf(file));
  return fits.filter((file) => (rank(file) === 0 ? file.text !== undefined || !pages.has(stem(file))
    : rank(file) > 1 || file.text === undefined || !pictures.has(stem(file))))
    .sort((left, right) => rank(left) - rank(right)).slice(0, MOST_INLINE);
}

/** Build the card of a file in the conversation. */
export function artifactCard(file, context) {
  const body = h(`div.artifact-body.${viewOf(file)}`, {});
  showFile(body, file, context, BRIEF);
  return h("figure.artifact", {},
    h("figcaption", {}, button(file.path, () => context.openFile(file.path), { kind: "link", iconName: viewOf(file) === "image" ? "image" : "file" }),
      h("span.muted", {}, bytes(file.size)), h("span.grow"), downloadLink(file, "icon quiet small")), body);
}

/** Build what saves a file. */
export function downloadLink(file, kind = "") {
  const words = t("Download {path}", { path: file.path });
  return h(["a", "btn", ...kind.split(" ").filter(Boolean)].join("."), { href: file.download, download: file.path.split("/").pop(), title: words, aria: { label: words } },
    icon("download"), !kind && h("span", {}, t("Download")));
}

const viewOf = (file) => (file.view === "text" && /\.(csv|tsv)$/i.test(file.path) ? "table" : file.view);

/** Read a file as text, of a large one whole lines of its first part. */
async function textOf(file) {
  const response = await fetch(file.url);
  if (!response.ok) throw new Error(t("The server answered with {status}.", { status: response.status }));
  if (file.size <= MOST_TEXT) return response.text();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    text += part.value;
    if (text.length < MOST_TEXT) continue;
    await reader.cancel();
    return text.slice(0, Math.max(text.lastIndexOf("\n", MOST_TEXT), 0) || MOST_TEXT);
  }
  return text;
}

/** Show a page of a PDF: the server draws it. */
async function showPdf(body, file, page) {
  const response = await fetch(`${file.url}?page=${page}`);
  if (!response.ok) throw new Error((await response.json()).detail);
  const pages = Number(response.headers.get("X-Pages"));
  const picture = URL.createObjectURL(await response.blob());
  const go = (by, iconName, title) => button("", () => showPdf(body, file, page + by).catch((error) => fill(body, h("p.error", {}, error.message))),
    { kind: "icon quiet", iconName, title, disabled: page + by < 1 || page + by > pages });
  fill(body, h("div.versions", {}, go(-1, "left", t("Previous page")), h("span", {}, `${page}/${pages}`), go(1, "right", t("Next page"))),
    h("img", { src: picture, alt: t("Page {n} of {path}", { n: page, path: file.path }), on: { load: () => URL.revokeObjectURL(picture) } }));
}

/** Show HTML: the server says by its policy whether it is a chart that it made, whose scripts run. */
async function showPage(body, file, failed, brief) {
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
  fill(body, !ours && !brief && h("div.scripts-off", {}, h("p", {}, t("This page is shown without its scripts. If they run, they can send what it holds to anybody on the internet.")),
    button(t("Run its scripts"), allow, {})), frame(file.url, file, ours));
}

const frame = (src, file, scripts) =>
  h("iframe", { sandbox: scripts ? "allow-scripts" : "", src, title: file.path, referrerPolicy: "no-referrer", loading: "lazy" });

function asText(text, file) {
  const left = text.length - SHOWN_TEXT;
  if (left <= 0) return colour(h("pre.code.plain", {}, text), text, file.path);
  return h("pre.code.plain", {}, `${text.slice(0, SHOWN_TEXT)}\n${t("… {n} more characters", { n: left })}`);
}

function table(text, file, { rows: most, columns }) {
  const rows = separated(text, file.path.toLowerCase().endsWith(".tsv") ? "\t" : ",", most + 1);
  const [head = [], ...rest] = rows;
  const more = text.trim().split("\n").length - rows.length;
  const cells = (tag, row) => row.slice(0, columns).map((cell) => h(tag, tag === "th" ? { scope: "col" } : {}, cell));
  return [h("div.table", { tabIndex: 0, role: "group", aria: { label: t("Table") } },
    h("table", {}, h("thead", {}, h("tr", {}, cells("th", head))),
      h("tbody", {}, rest.map((row) => h("tr", {}, cells("td", row)))))),
  h("p.muted", {}, [more > 0 && t("… {n} more lines", { n: more }),
    head.length > columns && t("… {n} more columns", { n: head.length - columns })].filter(Boolean).join(" "))];
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
