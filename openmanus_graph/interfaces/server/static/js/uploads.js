/** Files on their way into a thread's workspace, one after the other. */

import * as api from "./api.js";
import { bytes } from "./format.js";
import { t } from "./i18n.js";

/**
 * Build the queue.
 *
 * @param {object} hooks  `thread()` resolves to the id that files belong to; `onChange(list)` gets
 *   what is to be shown; `onDone()` is called when a file has arrived.
 */
export function createUploads({ thread, onChange, onDone }) {
  let list = [];
  let limit = Infinity;
  let working = Promise.resolve();

  const changed = () => onChange(list);

  function drop(entry) {
    entry.cancel?.();
    list = list.filter((one) => one !== entry);
    changed();
  }

  async function send(entry, replace) {
    if (!list.includes(entry)) return;
    Object.assign(entry, { error: "", share: 0, onReplace: null });
    changed();
    try {
      const request = api.upload(await thread(), entry.name, entry.file, {
        replace,
        onProgress: (share) => {
          entry.share = share;
          changed();
        },
      });
      entry.cancel = request.cancel;
      entry.stored = await request.done;
      entry.share = null;
      onDone();
    } catch (error) {
      entry.error = error.message;
      if (error.status === 409) entry.onReplace = () => queue(entry, true);
    } finally {
      entry.cancel = null;
      changed();
    }
  }

  function queue(entry, replace = false) {
    working = working.then(() => send(entry, replace));
  }

  return {
    setLimit: (most) => { limit = most; },
    add(files) {
      for (const file of files) {
        const entry = { name: file.name, size: file.size, file, share: 0, error: "", onReplace: null };
        entry.onRemove = () => drop(entry);
        list = [...list, entry];
        if (file.size > limit) entry.error = t("Larger than the {size} that the server takes.", { size: bytes(limit) });
        else queue(entry);
      }
      changed();
    },
    /** Wait until all are there; the paths of those that are. */
    async settled() {
      await working;
      return list.filter((one) => one.stored).map((one) => one.stored);
    },
    clear() {
      list = list.filter((one) => one.error);
      changed();
    },
    forget() {
      for (const entry of list) entry.cancel?.();
      list = [];
      changed();
    },
  };
}
