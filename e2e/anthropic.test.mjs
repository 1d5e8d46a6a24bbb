import assert from "node:assert/strict";
import { test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import { BASE, MODEL, aborted, conversation, settled, withFault } from "./setup.mjs";

const client = new Anthropic({ baseURL: BASE, apiKey: "none", maxRetries: 0 });

// request is a conversation in the form of this API.
function request(about, maxTokens) {
  const [system, user] = conversation(about);
  return { model: MODEL, system: system.content, messages: [user], max_tokens: maxTokens };
}

test("anthropic: messages, plain; the next turn is cached", async () => {
  const headers = { headers: { "X-Session-ID": "birds" } };
  const body = request("birds", 40);
  const first = await client.messages.create(body, headers);
  assert.equal(first.stop_reason, "max_tokens");
  assert.equal(first.usage.output_tokens, 40);
  assert.match(first.content[0].text, /^( [a-z]{3}){40}$/);

  const prompt = first.usage.input_tokens + first.usage.cache_read_input_tokens;
  body.messages.push({ role: "assistant", content: first.content }, { role: "user", content: "And more?" });
  const second = await client.messages.create(body, headers);
  assert.equal(second.usage.cache_read_input_tokens, Math.floor((prompt + 40 - 1) / 16) * 16);
});

test("anthropic: messages, streaming; the text is that of the plain answer", async () => {
  const headers = { headers: { "X-Session-ID": "fish" } };
  const plain = await client.messages.create(request("fish", 30), headers);
  const stream = client.messages.stream(request("fish", 30), headers);
  let text = "";
  stream.on("text", (t) => (text += t));
  const final = await stream.finalMessage();
  assert.equal(text, plain.content[0].text);
  assert.equal(final.content[0].text, text);
  assert.equal(final.stop_reason, "max_tokens");
  assert.equal(final.usage.output_tokens, 30);
});

test("anthropic: messages, aborted in the middle of a stream", async () => {
  await settled();
  const before = await aborted();
  const stream = client.messages.stream(request("bees", 20000));
  let deltas = 0;
  stream.on("text", () => { if (++deltas === 4) stream.abort(); });
  await assert.rejects(stream.finalMessage(), Anthropic.APIUserAbortError);
  await settled();
  assert.equal((await aborted()) - before, 1);
});

test("anthropic: messages, timed out", async () => {
  await settled();
  const before = await aborted();
  await assert.rejects(client.messages.create(request("ants", 20000), { timeout: 1000 }), Anthropic.APIConnectionTimeoutError);
  await settled();
  assert.equal((await aborted()) - before, 1);
});

test("anthropic: errors are the client's own", async () => {
  await assert.rejects(client.messages.create(request("cats", 0)), Anthropic.BadRequestError);
  await assert.rejects(client.messages.create({ ...request("cats", 5), model: "none" }), Anthropic.NotFoundError);
});

test("anthropic: an engine that dies in the middle of a stream is an error, not an end", async () => {
  await withFault({ die_next: 1, die_after_tokens: 5 }, async () => {
    await assert.rejects(client.messages.stream(request("dust", 50)).finalMessage());
  });
});
