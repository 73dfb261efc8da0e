/** What one sees before a task: what this is, tasks to begin with, and without a model how to get one. */

import { button, fill, h, icon } from "../dom.js";
import { t } from "../i18n.js";

const EXAMPLES = [
  ["chart", t("Analyse a table"), t("Look at the CSV file I added: clean it, find what stands out, draw two charts, and write a one-page report.md."), "data_analysis"],
  ["globe", t("Research with sources"), t("What changed in the newest Python release? Compare three sources and name them."), "manus"],
  ["code", t("Write and test code"), t("Write a command-line tool in Python that renames photos by the date they were taken, with tests, and run them."), "swe"],
  ["list", t("Plan a bigger job"), t("Make a plan for a small static web site about tea, build it page by page, and check every link."), "planning"],
];

/**
 * Build the greeting.
 *
 * @param {object} actions  `pick(text, agent)` takes an example over into the composer, `demo()`
 *   starts the demo; `setup` is the form for a model, `inputs` that for values of MCP servers.
 */
export function createWelcome({ pick, demo, setup, inputs }) {
  const problem = h("div.notice.warning", { hidden: true });
  const list = h("div.examples", { role: "group", aria: { label: t("Example tasks") } });
  const first = h("div.first", { hidden: true },
    h("div.card", {}, h("h3", {}, t("Set up a model")),
      h("p.muted", {}, t("The agent needs a language model. The key is stored on this machine, where only you can read it.")), setup.element),
    h("div.card", {}, h("h3", {}, t("Or look first")),
      h("p.muted", {}, t("A real task with real tools; only the model's words are recorded. It needs no key and takes half a minute.")),
      button(t("Watch the demo"), demo, { iconName: "play" })));
  const element = h("section.welcome", { aria: { labelledby: "welcome-title" } },
    h("h2", { id: "welcome-title" }, t("What should be done?")),
    h("p.muted", {}, t("Say it in plain words. The agent works with Python, a shell, files and a browser, asks before risky steps, and hands over an answer and files.")),
    problem, inputs.element, first);
  return {
    element,
    examples: list,
    offer(options) {
      const known = new Set(options.agents.map((one) => one.name));
      const words = [!options.needs_model && options.problem, ...(options.warnings ?? [])].filter(Boolean);
      problem.hidden = words.length === 0;
      first.hidden = !options.needs_model;
      if (options.needs_model) setup.load();
      inputs.offer(options.inputs ?? []);
      fill(problem, icon("info"), h("span.pre", {}, words.join("\n")));
      fill(list, !options.needs_model && EXAMPLES.filter(([, , , agent]) => known.has(agent)).map(([name, title, text, agent]) =>
        h("button.example", { type: "button", on: { click: () => pick(text, agent) } },
          icon(name), h("strong", {}, title), h("span.muted", {}, text))));
    },
  };
}
