// What the tests of every client share: where the servers are, and what the engines say of themselves.
import assert from "node:assert/strict";

// BASE is the server that clients talk to; ENGINES are the engines that compute, the same or behind it.
export const BASE = process.env.SLUICE_E2E_BASE;
export const ENGINES = process.env.SLUICE_E2E_ENGINES.split(",");
export const MODEL = process.env.SLUICE_E2E_MODEL;

// figure is a figure of vLLM's metrics, summed over the engines.
export async function figure(name, label = "") {
  let sum = 0;
  for (const engine of ENGINES) {
    const text = await (await fetch(`${engine}/metrics`)).text();
    for (const line of text.split("\n")) {
      if (line.startsWith(`vllm:${name}{`) && line.includes(label)) sum += Number(line.slice(line.lastIndexOf(" ") + 1));
    }
  }
  return sum;
}

export const aborted = () => figure("request_success_total", 'finished_reason="abort"');

// until asks again until a figure is as wanted, for a few seconds.
async function until(what, ask) {
  const end = Date.now() + 5000;
  while (!(await ask())) {
    assert.ok(Date.now() < end, what);
    await new Promise((done) => setTimeout(done, 20));
  }
}

// computing waits until an engine computes something; settled, until none does.
export const computing = () => until("no engine computes anything", async () => (await figure("num_requests_running")) > 0);
export const settled = () => until("requests are still computed for a client that has gone",
  async () => (await figure("num_requests_running")) + (await figure("num_requests_waiting")) === 0);

// conversation is a first turn long enough to fill some blocks.
export function conversation(about) {
  return [
    { role: "system", content: "You are a terse assistant that answers in words of three letters. ".repeat(8) },
    { role: "user", content: `Tell me about ${about}.` },
  ];
}

// withFault sets a fault on every engine while f runs.
export async function withFault(fault, f) {
  const set = (body) => Promise.all(ENGINES.map((e) => fetch(`${e}/fault`, { method: "POST", body: JSON.stringify(body) })));
  await set(fault);
  try {
    await f();
  } finally {
    await set(Object.fromEntries(Object.keys(fault).map((k) => [k, 0])));
  }
}
