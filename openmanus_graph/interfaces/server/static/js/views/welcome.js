/** What one sees before a task: what this is, and tasks to begin with. */

import { fill, h, icon } from "../dom.js";

const EXAMPLES = [
  ["chart", "Analyse a table", "Look at the CSV file I added: clean it, find what stands out, draw two charts, and write a one-page report.md.", "data_analysis"],
  ["globe", "Research with sources", "What changed in the newest Python release? Compare three sources and name them.", "manus"],
  ["code", "Write and test code", "Write a command-line tool in Python that renames photos by the date they were taken, with tests, and run them.", "swe"],
  ["list", "Plan a bigger job", "Make a plan for a small static web site about tea, build it page by page, and check every link.", "planning"],
];

/** Build the greeting; `pick(text, agent)` takes an example over into the composer. */
export function createWelcome(pick) {
  const problem = h("div.notice.warning", { hidden: true });
  const list = h("div.examples", { role: "group", aria: { label: "Example tasks" } });
  const element = h("section.welcome", { aria: { labelledby: "welcome-title" } },
    h("h2", { id: "welcome-title" }, "What should be done?"),
    h("p.muted", {}, "Say it in plain words. The agent works with Python, a shell, files and a browser, asks before risky steps, and hands over an answer and files."),
    problem);
  return {
    element,
    examples: list,
    offer(options) {
      const known = new Set(options.agents.map((one) => one.name));
      const words = [options.problem, ...(options.warnings ?? [])].filter(Boolean);
      problem.hidden = words.length === 0;
      fill(problem, icon("info"), h("span.pre", {}, words.join("\n")));
      fill(list, EXAMPLES.filter(([, , , agent]) => known.has(agent)).map(([name, title, text, agent]) =>
        h("button.example", { type: "button", on: { click: () => pick(text, agent) } },
          icon(name), h("strong", {}, title), h("span.muted", {}, text))));
    },
  };
}
