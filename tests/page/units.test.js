import assert from "node:assert/strict";
import test from "node:test";
import { JS } from "./texts.js";

const { changedLines, editOf, sideBySide } = await import(`${JS}/diff.js`);
const { bytes, callTitle, duration, groupName, groupRank, money, unmarkedLine } = await import(`${JS}/format.js`);
const { languageOf, parts } = await import(`${JS}/highlight.js`);
const { FORMULAS, formulaAt } = await import(`${JS}/math.js`);
const { Lexer } = await import(`${JS}/../vendor/marked.js`);
const { languageFor, t, tn } = await import(`${JS}/i18n.js`);
const { apply, modelOf, shownRows } = await import(`${JS}/reducer.js`);
const { separated } = await import(`${JS}/views/artifact.js`);

test("the language is the person's choice, else the first that the browser prefers and the page has", () => {
  assert.equal(languageFor(null, ["fr-FR", "zh-TW", "en"]), "zh");
  assert.equal(languageFor("en", ["zh-CN"]), "en");
  assert.equal(languageFor("xx", []), "en");
});

test("places of a text are filled with what they are given, and nothing else", () => {
  assert.equal(t("{a} and {b}", { a: "{b}" }), "{b} and {b}");
  assert.equal(tn(1, "{n} step", "{n} steps"), "1 step");
  assert.equal(tn(1234, "{n} step", "{n} steps"), "1,234 steps");
});

test("threads are grouped by the days and months of this place", () => {
  const now = new Date(2026, 2, 31, 0, 30); // half an hour after midnight
  const group = (...date) => {
    const iso = new Date(...date).toISOString();
    return groupName(groupRank(iso, now), iso, now);
  };
  assert.equal(group(2026, 2, 31, 0, 1), "Today");
  assert.equal(group(2027, 0, 1), "Today"); // a clock that was wrong
  assert.equal(group(2026, 2, 30, 23, 59), "Yesterday");
  assert.equal(group(2026, 2, 24), "Previous 7 days");
  assert.equal(group(2026, 2, 23, 23, 59), "Previous 30 days");
  assert.equal(group(2026, 2, 1), "Previous 30 days");
  assert.equal(group(2026, 1, 28), "February");
  assert.equal(group(2025, 11, 31), "December 2025");
  assert.equal(groupRank("", now), 1);
  assert.ok(groupRank("2024-03-01", now) > groupRank("2025-03-01", now));
});

test("an edit is found in the call of the editor alone", () => {
  const args = { command: "str_replace", path: "a.py", old_str: "x", new_str: "y" };
  assert.deepEqual(editOf("str_replace_editor", args), { path: "a.py", command: "str_replace", before: "x", after: "y" });
  assert.equal(editOf("bash", args), null);
  assert.equal(editOf("str_replace_editor", { command: "view", path: "a.py" }), null);
  assert.equal(editOf("str_replace_editor", { command: "create", path: "a.py", file_text: 7 }), null);
  assert.equal(editOf("str_replace_editor", { command: "str_replace", path: "a", old_str: "x" }).after, "");
});

test("changes are shown with three lines around them, the rest is counted", () => {
  const before = Array.from({ length: 30 }, (_, n) => `line ${n}`);
  const after = before.toSpliced(15, 1, "changed");
  const kinds = changedLines(before.join("\n"), after.join("\n")).map(({ kind, text }) => (kind === "skipped" ? text : kind[0]));
  assert.deepEqual(kinds, ["12", "s", "s", "s", "r", "a", "s", "s", "s", "11"]);
});

test("a new file is added lines, an emptied one removed ones", () => {
  assert.deepEqual(changedLines("", "a\nb\n"), [{ kind: "added", text: "a" }, { kind: "added", text: "b" }]);
  assert.deepEqual(changedLines("a", ""), [{ kind: "removed", text: "a" }]);
});

test("a unified diff is put side by side, with what it leaves out", () => {
  const diff = "--- a/x\n+++ b/x\n@@ -3,3 +3,4 @@\n same\n-old\n+new\n+more\n end\n@@ -9 +10,0 @@\n-last\n\\ No newline at end of file\n";
  const rows = sideBySide(diff).map(({ before, after, skipped }) =>
    skipped ?? [before?.number, before?.text, after?.number, after?.text, Boolean((before ?? after).changed)]);
  assert.deepEqual(rows, [
    2, [3, "same", 3, "same", false], [4, "old", 4, "new", true], [undefined, undefined, 5, "more", true],
    [5, "end", 6, "end", false], 3, [9, "last", undefined, undefined, true],
  ]);
});

test("what is not a diff has no rows, a new file only new lines", () => {
  assert.deepEqual(sideBySide("changed picture: file of 5 bytes, mode 644, 0123 -> nothing\n"), []);
  const [row] = sideBySide("--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+-- a\n");
  assert.deepEqual([row.before, row.after.number, row.after.text], [undefined, 1, "-- a"]);
});

test("highlighted code is cut into texts and the classes around them", async () => {
  const { default: library } = await import(`${JS}/../vendor/highlight.js`);
  const source = "if x < 1 & y: print(\"<b>\" + 'é') # 'q'";
  const pieces = parts(library.highlight(source, { language: "python" }).value);
  assert.equal(pieces.map(({ text }) => text ?? "").join(""), source);
  assert.equal(pieces.filter(({ open }) => open).length, pieces.filter(({ close }) => close).length);
  assert.ok(pieces.some(({ open }) => open === "hljs-keyword"));
  assert.deepEqual(parts("<img src=x>"), [{ text: "<img src=x>" }]);
});

test("the language of code is known by a fence's word or a file's name", () => {
  assert.deepEqual(["py", "src/app.PY", "python {.x}", "Makefile", ""].map(languageOf), ["python", "python", "python", "makefile", ""]);
});

test("numbers are written as people read them, and nothing is ever null", () => {
  assert.deepEqual([0, 0.00001, 0.0042, null, 0.25, 2.5].map(money), ["$0", "<$0.0001", "$0.0042", "$0", "$0.250", "$2.50"]);
  assert.deepEqual([duration(0.05), duration(7), duration(185), duration(null)], ["50 ms", "7.0 s", "3 min 05 s", "0 ms"]);
  assert.deepEqual([bytes(999), bytes(4100), bytes(null)], ["999 B", "4.1 KB", "0 B"]);
  assert.equal(callTitle({ tool: "x", title: ["edit {path}", { path: "{n}" }] }), "edit {n}");
  assert.equal(callTitle({ tool: "x", title: null }), "x");
  assert.equal(callTitle({ tool: "bash", title: null, args: { command: "ls\nrm" } }), "bash ls");
});

test("what a run does is a state of the model, which views put into words", () => {
  const at = { ns: "", run: "r", ts: "2026-01-01T00:00:00Z" };
  const events = [{ type: "run_start", kind: "start", task: "T", agent: "manus", model: "m" },
    { type: "think_start", step: 1 }, { type: "tool_start", call_id: "1", tool: "bash", args: {} }];
  const model = modelOf(events.map((event, n) => ({ ...at, ...event, seq: n + 1 })));
  assert.deepEqual(model.activity, { kind: "calling", tool: "bash" });
});

test("a subagent's steps are its own, and its beginning is reported as a subagent's", () => {
  const at = { ns: "", run: "r", ts: "2026-01-01T00:00:00Z" };
  const events = [{ type: "run_start", kind: "start", task: "T", agent: "manus", model: "m" },
    { type: "think_start", step: 2 },
    { type: "step_start", id: "swe-3f2a", executor: "swe", status: "in_progress", namespace: "act:1" },
    { type: "think_start", step: 7, ns: "swe-3f2a" }];
  const model = modelOf(events.map((event, n) => ({ ...at, ...event, seq: n + 1 })));
  assert.equal(model.step, 2);
  const [begun, thought] = model.rows.slice(-2);
  assert.deepEqual([begun.kind, begun.id, begun.subagent, begun.status], ["step", "swe-3f2a", true, "in_progress"]);
  assert.deepEqual([thought.kind, thought.ns], ["think", "swe-3f2a"]);
  assert.deepEqual(shownRows(model, () => false).map((row) => row.kind), ["task", "think", "step"]);
});

test("a call that runs a subagent is its card, with its task; one that failed is shown as well", () => {
  const at = { ns: "", run: "r", ts: "2026-01-01T00:00:00Z" };
  const call = { call_id: "1", tool: "delegate", args: { agent: "swe", task: "Write hello.py." } };
  const starts = { type: "step_start", id: "swe-3f2a", call_id: "1", executor: "swe", status: "in_progress", namespace: "act:1" };
  const events = [{ type: "run_start", kind: "start", task: "T", agent: "manus", model: "m" },
    { type: "think_start", step: 1 }, { type: "tool_start", ...call }, starts, { ...starts, type: "step_end", status: "completed" },
    { type: "tool_end", ...call, ok: true, output: "" }];
  const shown = (ok) => shownRows(modelOf(events.map((event, n) => ({ ...at, ...event, ...("ok" in event && { ok }), seq: n + 1 }))), () => false);
  assert.deepEqual(shown(true).map((row) => row.text ?? row.kind), ["T", "", "Write hello.py."]);
  assert.deepEqual(shown(false).map((row) => row.kind), ["task", "think", "call", "step"]);
});

test("a message instead of an answer ends the waiting of the question and of its call", () => {
  const at = { ns: "", run: "r", ts: "2026-01-01T00:00:00Z" };
  const begins = { type: "run_start", kind: "start", task: "T", agent: "manus", model: "m" };
  const events = [begins, { type: "tool_start", call_id: "1", tool: "ask_human", args: { inquire: "Which?" } },
    { type: "interrupt", kind: "question", id: "q", question: "Which?", calls: [] },
    { type: "final", status: "waiting", stop_reason: "question" }];
  const model = modelOf(events.map((event, n) => ({ ...at, ...event, seq: n + 1 })));
  const [call] = model.rows.filter((row) => row.kind === "call");
  assert.deepEqual([call.waiting, call.cut, model.questions.size], [true, false, 1]);
  apply(model, [{ ...at, ...begins, run: "s", seq: 9 }]);
  assert.deepEqual([call.waiting, call.cut, model.questions.size], [false, true, 0]);
});

test("a line of Markdown loses its signs and nothing else", () => {
  assert.equal(unmarkedLine("## How **Q1** and `x` differ"), "How Q1 and x differ");
  assert.equal(unmarkedLine("2 * 3 ** 2 and a__b"), "2 * 3 ** 2 and a__b");
});

test("a subagent continues after a question", () => {
  const at = { ns: "", run: "r", ts: "2026-01-01T00:00:00Z" };
  const starts = { type: "step_start", id: "swe-3f2a", executor: "swe", status: "in_progress", namespace: "act:1" };
  const events = [{ type: "run_start", kind: "start", task: "T", agent: "manus", model: "m" },
    starts, starts, { ...starts, type: "step_end", status: "blocked" }, starts];
  const model = modelOf(events.map((event, n) => ({ ...at, ...event, seq: n + 1 })));
  assert.deepEqual(model.rows.map((row) => [row.kind, row.status]), [["task", undefined], ["step", "in_progress"]]);
});

test("the parts of subagents that work at once lie under each of them", () => {
  const at = { run: "r", ts: "2026-01-01T00:00:00Z" };
  const starts = { type: "step_start", executor: "swe", status: "in_progress", namespace: "act:1" };
  const calls = (ns, id) => ({ type: "tool_start", ns, call_id: id, tool: "bash", args: {} });
  const events = [{ type: "run_start", kind: "start", task: "T" }, { ...starts, id: "a" }, { ...starts, id: "b" },
    calls("a", "1"), calls("b", "2"), { ...starts, id: "c", ns: "a" }, calls("a/c", "3"), calls("a", "4"),
    { ...starts, type: "step_end", id: "a", status: "completed", seconds: 3, cost_usd: 0.5 }];
  const model = modelOf(events.map((event, n) => ({ ns: "", ...at, ...event, seq: n + 1 })));
  const shown = shownRows(model, () => true).map((row) => row.id ?? row.callId ?? row.kind);
  assert.deepEqual(shown, ["task", "a", "1", "c", "3", "4", "b", "2"]);
  const [, a] = model.rows;
  assert.deepEqual([a.status, a.parts, a.seconds, a.cost, a.newest.callId], ["completed", 2, 3, 0.5, "4"]);
});

test("a table keeps quoted separators and line breaks in their cells", () => {
  assert.deepEqual(separated('a,"b, ""c""\nd"\r\ne', ",", 9), [["a", 'b, "c"\nd'], ["e"]]);
});

test("characters that turn the direction of text around, or steer a terminal, are shown as odd ones", async () => {
  const { plain } = await import(`${JS}/dom.js`);
  assert.equal(plain("report\u202egpj.exe \u001b[31mred\u0007\tשלום\n"), "report\ufffdgpj.exe \ufffd[31mred\ufffd\tשלום\n");
});

test("the mark around text from outside is made for the model, and not shown", async () => {
  const { withoutMark } = await import(`${JS}/format.js`);
  assert.equal(withoutMark("<untrusted-0a1b2c3d>\nPage\nx\n</untrusted-0a1b2c3d>\nmore"), "Page\nx\nmore");
  assert.equal(withoutMark("<untrusted-0a1b2c3d>\nPage"), "<untrusted-0a1b2c3d>\nPage");
  assert.equal(withoutMark(null), "");
});

test("all days between two are named, over the end of a year too", async () => {
  const { daysBetween } = await import(`${JS}/plots.js`);
  assert.deepEqual(daysBetween("2025-12-30", "2026-01-02"), ["2025-12-30", "2025-12-31", "2026-01-01", "2026-01-02"]);
  assert.deepEqual(daysBetween("2026-01-02", "2026-01-01"), []);
});

test("a formula is found by its marks, and money is not a formula", () => {
  const found = (text) => formulaAt(text)?.text;
  assert.equal(found("$x^2$ is"), "x^2");
  assert.equal(found("$n$"), "n");
  assert.equal(found("$$\\frac{a}{b}$$"), "\\frac{a}{b}");
  assert.equal(found("\\[ a \\]"), "a");
  assert.equal(found("\\(a\\)"), "a");
  for (const text of ["$5 and $10", "$HOME and $PATH", "$5-$10", "$ x $", "$20/month or more$", "$$", "$$$$", "\\(", "$a b", "$cost$"]) assert.equal(found(text), undefined, text);
  assert.equal(formulaAt("$$a$$").display, true);
  assert.equal(formulaAt("$a$").display, false);
});

test("formulas of any text are read in time", async () => {
  for (const text of ["$".repeat(50_000), "$a ".repeat(20_000), "\\[".repeat(20_000), "$$a\n".repeat(3_000), "\n\n$$".repeat(20_000)]) {
    const began = performance.now();
    new Lexer({ gfm: true, extensions: FORMULAS }).lex(text);
    assert.ok(performance.now() - began < 5_000, text.slice(0, 9));
  }
});
