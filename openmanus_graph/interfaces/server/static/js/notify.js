/** What the system tells a person who looks elsewhere: a run has ended, or asks something. */

const KEY = "openmanus_notify";

/** Whether this browser can do it here at all. */
export const canNotify = () => "Notification" in globalThis && isSecureContext;

export const notifies = () => canNotify() && Notification.permission === "granted" && localStorage.getItem(KEY) === "on";

/** Switch it on or off; resolves to what holds now: the person may refuse. */
export async function setNotify(on) {
  if (on && Notification.permission !== "granted") await Notification.requestPermission();
  localStorage.setItem(KEY, on && Notification.permission === "granted" ? "on" : "off");
  return notifies();
}

/** Tell something about a thread, unless the page is in sight; a newer one takes its place. */
export function notify(thread, title, body) {
  if (!document.hidden || !notifies()) return;
  const shown = new Notification(title, { body, tag: thread });
  shown.onclick = () => {
    window.focus();
    shown.close();
  };
}
