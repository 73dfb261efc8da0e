/** The plan as a checklist. */

import { fill, h } from "../dom.js";
import { duration, money } from "../format.js";
import { t, tn } from "../i18n.js";
import { planMark } from "../words/status.js";

export function createPlan() {
  const element = h("div.panel-body", {});
  let drawn = null;
  return {
    element,
    show(model) {
      if (model?.plan === drawn) return;
      drawn = model?.plan ?? null;
      if (!drawn?.length) {
        fill(element, h("p.empty", {}, t("There is no plan. The agents planner and planning make one.")));
        return;
      }
      const done = drawn.filter((step) => step.status === "completed").length;
      fill(element,
        h("div.plan-sum", {}, h("span", {}, tn(drawn.length, "{done} of {n} step completed", "{done} of {n} steps completed", { done })),
          h("progress", { max: drawn.length, value: done, aria: { label: t("Steps completed") } })),
        h("ol.plan", {}, drawn.map((step, index) => planItem(step, drawn[index - 1]))));
    },
  };
}

function planItem(step, before) {
  const follows = step.depends_on.length === 1 && step.depends_on[0] === before?.id;
  const [sign, words] = planMark(step.status);
  const facts = [words, step.executor,
    step.seconds && duration(step.seconds),
    step.cost_usd ? money(step.cost_usd) : "",
    step.depends_on.length > 0 && !follows && t("after {steps}", { steps: step.depends_on.join(", ") })];
  return h(`li.${step.status}`, {},
    h(`span.mark.${step.status}`, { aria: { hidden: "true" } }, sign),
    h("div", {}, h("div.plan-text", {}, h("span.ns", {}, step.id), " ", step.text),
      h("div.muted", {}, facts.filter(Boolean).join(" · ")),
      step.done_when && h("div.muted", {}, t("Done when {test}", { test: step.done_when }))));
}
