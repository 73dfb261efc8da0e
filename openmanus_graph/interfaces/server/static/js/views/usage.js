/** What runs and model calls have used: sums, plots by day, tables, and the most expensive threads. */

import * as api from "../api.js";
import { button, fill, h } from "../dom.js";
import { count, duration, money } from "../format.js";
import { t } from "../i18n.js";
import { barPlot, daysBetween } from "../plots.js";

const BY = { day: t("Day"), model: t("Model"), agent: t("Agent"), user: t("User"), trigger: t("Started by") };
const SINCE = { "7d": t("7 days"), "30d": t("30 days"), "90d": t("90 days"), "365d": t("A year") };
const NOTHING = { runs: 0, finished: 0, input_tokens: 0, cached_tokens: 0, output_tokens: 0, cost_usd: 0, seconds: 0 };

/** Build the dialog. */
export function createUsage(open) {
  const by = choice("usage-by", BY, "day");
  const since = choice("usage-since", SINCE, "30d");
  const error = h("div.error", { role: "alert" });
  const body = h("div.usage-body", { tabIndex: 0, role: "region", aria: { labelledby: "usage-title", live: "polite" } });
  const dialog = h("dialog.usage-dialog", { aria: { labelledby: "usage-title" } },
    h("header.usage-head", {}, h("h2.grow", { id: "usage-title" }, t("Usage")),
      h("label.usage-choice", { htmlFor: "usage-since" }, h("span", {}, t("Time")), since),
      h("label.usage-choice", { htmlFor: "usage-by" }, h("span", {}, t("Rows")), by),
      button(t("Close"), () => dialog.close())),
    error, body);
  let newest = 0; // a slow answer must not replace a later one

  function choice(id, options, chosen) {
    return h("select", { id, on: { change: () => load() } },
      Object.entries(options).map(([value, label]) => h("option", { value, selected: value === chosen }, label)));
  }

  async function load() {
    const mine = ++newest;
    error.textContent = "";
    try {
      const [rows, days] = await Promise.all([api.usage(by.value, since.value), api.usage("day", since.value)]);
      if (mine === newest) draw(rows, days);
    } catch (problem) {
      if (mine === newest) error.textContent = problem.message;
    }
  }

  function draw(found, days) {
    const total = { ...NOTHING, ...found.total };
    fill(body,
      !found.rows.length && h("p.empty", { role: "status" }, t("Nothing was used in this time.")),
      found.rows.length > 0 && [
        h("dl.usage-sums", {}, sums(total)),
        h("div.plots", {}, plots(days, total)),
        table(BY[by.value], by.value === "day" ? [...found.rows].reverse() : found.rows, nameOf),
        h("h3", {}, t("The most expensive threads")),
        table(t("Thread"), found.threads, (row) => (row.name === row.thread ? t("Deleted thread") : h("a", { href: `/app/t/${encodeURIComponent(row.thread)}`, on: { click: (event) => {
          event.preventDefault();
          dialog.close();
          open(row.thread);
        } } }, row.name)))]);
  }

  return {
    element: dialog,
    open() {
      dialog.showModal();
      load();
    },
  };
}

const nameOf = (row) => row.name || "–";
const share = (part, whole) => (whole ? `${Math.round((100 * part) / whole)} %` : "–");
const tokensOf = (row) => row.input_tokens + row.output_tokens;

function sums(total) {
  return [
    [t("Runs"), count(total.runs)],
    [t("Successful"), share(total.finished, total.runs)],
    [t("Tokens"), count(tokensOf(total))],
    [t("Cached"), share(total.cached_tokens, total.input_tokens)],
    [t("Cost"), money(total.cost_usd)],
    [t("Run time"), duration(total.seconds)],
  ].map(([label, value]) => h("div", {}, h("dt.muted", {}, label), h("dd", {}, value)));
}

function plots(days, total) {
  const known = new Map(days.rows.map((row) => [row.name, row]));
  const last = new Date().toISOString().slice(0, 10);
  const rows = daysBetween(days.since, last).map((day) => ({ ...NOTHING, ...known.get(day), day }));
  const bars = (parts, words) => rows.map((row) => ({ label: row.day, parts: parts(row), words: `${row.day}: ${words(row)}` }));
  const fresh = (row) => row.input_tokens - row.cached_tokens + row.output_tokens;
  return [
    barPlot(`${t("Cost")}: ${money(total.cost_usd)}`, bars((row) => [row.cost_usd], (row) => money(row.cost_usd)), ["one"]),
    barPlot(t("Tokens: {n}, {cached} of the input cached", { n: count(tokensOf(total)), cached: share(total.cached_tokens, total.input_tokens) }),
      bars((row) => [fresh(row), row.cached_tokens], (row) => count(tokensOf(row))), ["one", "two"]),
    barPlot(t("Runs: {n}, {success} successful", { n: count(total.runs), success: share(total.finished, total.runs) }),
      bars((row) => [row.finished, row.runs - row.finished], (row) => t("{n} runs, {done} successful", { n: count(row.runs), done: count(row.finished) })),
      ["one", "bad"]),
  ];
}

function table(heading, rows, name) {
  const columns = [t("Runs"), t("Successful"), t("Tokens"), t("Cached"), t("Cost"), t("Run time")];
  return h("div.table", { tabIndex: 0, role: "region", aria: { label: heading } }, h("table", {},
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, heading), columns.map((one) => h("th.right", { scope: "col" }, one)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, h("th", { scope: "row" }, name(row)),
      [count(row.runs), share(row.finished, row.runs), count(tokensOf(row)), share(row.cached_tokens, row.input_tokens),
        money(row.cost_usd), duration(row.seconds)].map((cell) => h("td.right", {}, cell)))))));
}
