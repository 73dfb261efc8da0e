/** Light, dark, or as the system has it. */

const KEY = "openmanus_theme";
const ORDER = ["system", "light", "dark"];

/** Apply what was chosen before. */
export function applyTheme() {
  const chosen = localStorage.getItem(KEY);
  if (ORDER.includes(chosen) && chosen !== "system") document.documentElement.dataset.theme = chosen;
  else delete document.documentElement.dataset.theme;
}

/** Go to the next one and return its name. */
export function nextTheme() {
  const now = localStorage.getItem(KEY) ?? "system";
  const next = ORDER[(ORDER.indexOf(now) + 1) % ORDER.length];
  localStorage.setItem(KEY, next);
  applyTheme();
  return next;
}
