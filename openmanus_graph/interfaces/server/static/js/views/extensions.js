/** What an agent can use: its tools, and the server's skills and MCP servers. They are set up in files. */

import * as api from "../api.js";
import { button, fill, h } from "../dom.js";
import { t } from "../i18n.js";

/** Build the dialog. */
export function createExtensions() {
  const error = h("div.error", { role: "alert" });
  const body = h("div.usage-body", { tabIndex: 0, role: "region", aria: { labelledby: "extensions-title", live: "polite" } });
  const dialog = h("dialog.usage-dialog", { aria: { labelledby: "extensions-title" } },
    h("header.usage-head", {}, h("h2.grow", { id: "extensions-title" }, t("Tools, skills and MCP servers")),
      button(t("Close"), () => dialog.close())),
    error, body);

  function draw(agent, { tools, skills, servers }) {
    const named = Object.entries(tools);
    fill(body,
      h("h3", {}, t("Tools of {agent}", { agent })),
      named.length ? list(named.map(([name, about]) => [name, about, ""])) : h("p.empty", {}, t("They are known when the agent runs.")),
      h("h3", {}, t("Skills")),
      skills.length ? list(skills.map((one) => [one.name, [one.description, ...one.problems].filter(Boolean).join(" · "), one.problems.length ? t("not used") : one.place, one.problems.length]))
        : h("p.empty", {}, t("None. Add one with: {command}", { command: "openmanus skills add" })),
      h("h3", {}, t("MCP servers")),
      servers.length ? list(servers.map((one) => [one.name, one.local ? t("a program on this server") : t("an address"), one.on ? t("on") : t("off"), !one.on]))
        : h("p.empty", {}, t("None. Add one with: {command}", { command: "openmanus mcp add" })),
      h("p.muted", {}, t("Skills are folders, and MCP servers are set in mcp.json or config.toml. There you turn them on and off.")));
  }

  const list = (rows) => h("ul.cards", {}, rows.map(([name, about, state, off]) => h("li", {},
    h("div.grow", {}, h("strong", {}, name), h("div.muted", {}, about)), state && h(`span.tag${off ? ".warn" : ""}`, {}, state))));

  return {
    element: dialog,
    async open(agent) {
      fill(body);
      error.textContent = "";
      dialog.showModal();
      try {
        draw(agent, await api.extensions(agent));
      } catch (problem) {
        error.textContent = problem.message;
      }
    },
  };
}
