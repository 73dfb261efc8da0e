// The official client of AG-UI, as an application uses it: `node client.mjs URL TOKEN`.
// It checks the order of all events by itself. Prints what it has seen as JSON.
import { HttpAgent } from "@ag-ui/client";

const [url, token] = process.argv.slice(2);
const agent = new HttpAgent({ url, headers: { Authorization: `Bearer ${token}` } });
const lines = () => agent.messages.map((one) => `${one.role}: ${String(one.content).trim()}`);

async function say(content) {
  agent.addMessage({ id: crypto.randomUUID(), role: "user", content });
  return agent.runAgent();
}

await say("Write.");
const first = lines();

let open = [];
agent.subscribe({
  onRunFinishedEvent: ({ event }) => {
    open = event.outcome?.interrupts ?? [];
  },
});
await say("Paint.");
const [{ id, message: asked }] = open;
await agent.runAgent({ resume: [{ interruptId: id, status: "resolved", payload: "Blue" }] });
const painted = agent.messages.at(-1).content;

agent.subscribe({ onToolCallEndEvent: () => agent.abortRun() });
await say("Wait.").catch(() => {});

process.stdout.write(JSON.stringify({ first, asked, painted, thread: agent.threadId }));
