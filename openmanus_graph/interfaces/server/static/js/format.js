/** Numbers, times and names as people read them. Pure. */

import { language, t } from "./i18n.js";

/** Dollars: enough digits to see small sums move; as `money` in runtime/output.py. */
export function money(dollars) {
  const value = Number(dollars) || 0;
  if (value === 0) return "$0";
  if (value < 0.0001) return "<$0.0001";
  if (value < 0.01) return `$${value.toFixed(4)}`;
  return `$${value.toFixed(value < 1 ? 3 : 2)}`;
}

/** Seconds of work: 0.4 s, 12 s, 3 min 05 s, 2 h 10 min. */
export function duration(seconds) {
  const value = Number(seconds) || 0;
  if (value < 0.0995) return t("{n} ms", { n: Math.round(value * 1000) });
  if (value < 9.95) return t("{n} s", { n: value.toFixed(1) });
  if (value < 59.5) return t("{n} s", { n: Math.round(value) });
  const whole = Math.round(value);
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return t("{m} min {s} s", { m: minutes, s: String(whole % 60).padStart(2, "0") });
  return t("{h} h {m} min", { h: Math.floor(minutes / 60), m: String(minutes % 60).padStart(2, "0") });
}

/** Bytes: 312 B, 4.1 KB, 98 MB. */
export function bytes(size) {
  const units = ["B", "KB", "MB", "GB"];
  let value = Number(size) || 0;
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${value < 10 && unit ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

/** Counts with a thin grouping: 12,345; from a million on 1.2 M. */
export function count(number) {
  const value = Number(number) || 0;
  return value >= 1e6 ? t("{n} M", { n: (value / 1e6).toFixed(1) }) : Math.round(value).toLocaleString("en-US");
}

/** How long ago, or the date when it was longer than a week. */
export function ago(iso, now = Date.now()) {
  const then = Date.parse(iso);
  if (Number.isNaN(then)) return "";
  const seconds = Math.max(0, (now - then) / 1000);
  if (seconds < 60) return t("now");
  if (seconds < 3600) return t("{n} min ago", { n: Math.floor(seconds / 60) });
  if (seconds < 86400) return t("{n} h ago", { n: Math.floor(seconds / 3600) });
  if (seconds < 7 * 86400) return t("{n} d ago", { n: Math.floor(seconds / 86400) });
  return new Date(then).toLocaleDateString(language);
}

/** The rank of a day's group in a list of threads, newest first: today is 1, months are 5 and more. */
export function groupRank(iso, now = new Date()) {
  const then = new Date(iso);
  const days = Math.round((midnight(now) - midnight(then)) / 86_400_000);
  if (!(days > 0)) return 1; // also no date at all
  if (days === 1) return 2;
  if (days <= 7) return 3;
  if (days <= 30) return 4;
  return 4 + (now.getFullYear() - then.getFullYear()) * 12 + now.getMonth() - then.getMonth();
}

/** The name of a group; that of a month has its year if it is another one. */
export function groupName(rank, iso, now = new Date()) {
  const named = [t("Pinned"), t("Today"), t("Yesterday"), t("Previous 7 days"), t("Previous 30 days")];
  if (rank < named.length) return named[rank];
  const then = new Date(iso);
  const year = then.getFullYear() === now.getFullYear() ? undefined : "numeric";
  return then.toLocaleDateString(language, { month: "long", year });
}

const midnight = (date) => new Date(date.getFullYear(), date.getMonth(), date.getDate());

/** Time of day with seconds. */
export function clock(iso) {
  const then = new Date(iso);
  return Number.isNaN(then.getTime()) ? "" : then.toLocaleTimeString(language);
}

/** The first line of a text, cut to a length. */
export function firstLine(text, length = 120) {
  const line = String(text ?? "").trim().split("\n", 1)[0];
  return line.length > length ? `${line.slice(0, length - 1)}…` : line;
}

/** An output without the mark around text from outside, which is made for the model. */
export function withoutMark(output) {
  return String(output ?? "").replace(/<(untrusted-[0-9a-f]{8})>\n([^]*?)\n<\/\1>/g, "$2");
}

/** A line of Markdown without its signs. */
export const unmarkedLine = (line) => line.replace(/^#{1,6} +/, "").replace(/(\*\*|__|`)(?=\S)(.*?\S)\1/g, "$2");

/** Questions are Markdown; everything else is shown as it is. */
const unmarked = (title, tool) => (tool === "ask_human" ? unmarkedLine(title) : title);

/** What a call does, in one line; journals of other versions have no titles. */
export const callTitle = ({ tool, title, args }) => (title ? unmarked(t(...title), tool) : firstLine(`${tool} ${Object.values(args ?? {})[0] ?? ""}`));
