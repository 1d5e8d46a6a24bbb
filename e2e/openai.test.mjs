import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";
import { BASE, MODEL, aborted, computing, conversation, settled, withFault } from "./setup.mjs";

const client = new OpenAI({ baseURL: `${BASE}/v1`, apiKey: "none", maxRetries: 0 });
const session = (name) => ({ headers: { "X-Session-ID": name } });

test("openai: models", async () => {
  const list = await client.models.list();
  assert.ok(list.data.some((m) => m.id === MODEL));
});

test("openai: chat, plain; the next turn is cached", async () => {
  const messages = conversation("tea");
  const first = await client.chat.completions.create({ model: MODEL, messages, max_tokens: 40 }, session("tea"));
  assert.equal(first.choices[0].finish_reason, "length");
  assert.equal(first.usage.completion_tokens, 40);
  assert.equal(first.usage.total_tokens, first.usage.prompt_tokens + 40);
  assert.match(first.choices[0].message.content, /^( [a-z]{3}){40}$/);

  messages.push(first.choices[0].message, { role: "user", content: "And more?" });
  const second = await client.chat.completions.create({ model: MODEL, messages, max_tokens: 10 }, session("tea"));
  const whole = Math.floor((first.usage.prompt_tokens + 40 - 1) / 16) * 16;
  assert.equal(second.usage.prompt_tokens_details.cached_tokens, whole);
});

test("openai: chat, streaming; the text is that of the plain answer", async () => {
  const messages = conversation("rain");
  const plain = await client.chat.completions.create({ model: MODEL, messages, max_tokens: 30 }, session("rain"));
  const stream = await client.chat.completions.create(
    { model: MODEL, messages, max_tokens: 30, stream: true, stream_options: { include_usage: true } }, session("rain"));
  let text = "", finish, usage, chunks = 0;
  for await (const chunk of stream) {
    chunks++;
    text += chunk.choices[0]?.delta?.content ?? "";
    finish ??= chunk.choices[0]?.finish_reason ?? undefined;
    usage ??= chunk.usage ?? undefined;
  }
  assert.equal(text, plain.choices[0].message.content);
  assert.equal(finish, "length");
  assert.equal(usage.completion_tokens, 30);
  assert.ok(usage.prompt_tokens_details.cached_tokens > 0);
  assert.ok(chunks >= 30, `${chunks} chunks for 30 tokens`);
});

test("openai: chat, streaming without asking for usage gives no chunk of usage", async () => {
  const stream = await client.chat.completions.create({ model: MODEL, messages: conversation("wind"), max_tokens: 5, stream: true });
  for await (const chunk of stream) {
    assert.equal(chunk.choices.length, 1);
    assert.ok(chunk.usage == null);
  }
});

test("openai: chat, aborted in the middle of a stream", async () => {
  await settled();
  const before = await aborted();
  const stream = await client.chat.completions.create({ model: MODEL, messages: conversation("snow"), max_tokens: 20000, stream: true });
  let chunks = 0;
  for await (const _ of stream) if (++chunks === 4) break; // leaving the loop aborts the request
  await settled();
  assert.equal((await aborted()) - before, 1);
});

test("openai: chat, aborted before a plain answer", async () => {
  await settled();
  const before = await aborted();
  const leave = new AbortController();
  const answer = client.chat.completions.create({ model: MODEL, messages: conversation("hail"), max_tokens: 20000 }, { signal: leave.signal });
  const rejected = assert.rejects(answer, OpenAI.APIUserAbortError);
  await computing();
  leave.abort();
  await rejected;
  await settled();
  assert.equal((await aborted()) - before, 1);
});

test("openai: chat, timed out", async () => {
  await settled();
  const before = await aborted();
  await assert.rejects(
    client.chat.completions.create({ model: MODEL, messages: conversation("fog"), max_tokens: 20000 }, { timeout: 1000 }),
    OpenAI.APIConnectionTimeoutError);
  await settled();
  assert.equal((await aborted()) - before, 1);
});

test("openai: errors are the client's own", async () => {
  await assert.rejects(client.chat.completions.create({ model: MODEL, messages: conversation("ice"), max_tokens: -1 }), OpenAI.BadRequestError);
  await assert.rejects(client.chat.completions.create({ model: "none", messages: conversation("ice") }), OpenAI.NotFoundError);
});

test("openai: completions, plain and streaming", async () => {
  const body = { model: MODEL, prompt: "Once upon a time", max_tokens: 12 };
  const plain = await client.completions.create(body);
  assert.equal(plain.usage.completion_tokens, 12);
  let text = "";
  for await (const chunk of await client.completions.create({ ...body, stream: true })) text += chunk.choices[0]?.text ?? "";
  assert.equal(text, plain.choices[0].text);
});

test("openai: responses, plain", async () => {
  const r = await client.responses.create({ model: MODEL, instructions: "Be brief.", input: "Hello there", max_output_tokens: 25 });
  assert.equal(r.status, "incomplete");
  assert.equal(r.incomplete_details.reason, "max_output_tokens");
  assert.equal(r.usage.output_tokens, 25);
  assert.match(r.output_text, /^( [a-z]{3}){25}$/);
});

test("openai: responses, streaming", async () => {
  const stream = await client.responses.create({ model: MODEL, input: [{ role: "user", content: "Hello there" }], max_output_tokens: 25, stream: true });
  const kinds = [];
  let text = "", last = -1, end;
  for await (const event of stream) {
    assert.equal(event.sequence_number, ++last);
    if (event.type === "response.output_text.delta") text += event.delta;
    else kinds.push(event.type);
    end = event;
  }
  assert.deepEqual(kinds, [
    "response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
    "response.output_text.done", "response.content_part.done", "response.output_item.done", "response.incomplete",
  ]);
  assert.equal(end.response.output[0].content[0].text, text);
  assert.equal(end.response.usage.output_tokens, 25);
});

test("openai: responses, aborted in the middle of a stream", async () => {
  await settled();
  const before = await aborted();
  const stream = await client.responses.create({ model: MODEL, input: "Hello again", max_output_tokens: 20000, stream: true });
  for await (const event of stream) if (event.type === "response.output_text.delta") break;
  await settled();
  assert.equal((await aborted()) - before, 1);
});

test("openai: responses, timed out", async () => {
  await settled();
  await assert.rejects(client.responses.create({ model: MODEL, input: "Hello once more", max_output_tokens: 20000 }, { timeout: 1000 }), OpenAI.APIConnectionTimeoutError);
  await settled();
});

test("openai: an engine that dies in the middle of a stream is an error, not an end", async () => {
  await withFault({ die_next: 1, die_after_tokens: 5 }, async () => {
    let text = "";
    await assert.rejects(async () => {
      const stream = await client.chat.completions.create({ model: MODEL, messages: conversation("hope"), max_tokens: 50, stream: true });
      for await (const chunk of stream) text += chunk.choices[0]?.delta?.content ?? "";
    });
    assert.match(text, /^( [a-z]{3}){1,5}$/);
  });
});

test("openai: the client tries again after an engine's failure", async () => {
  const patient = client.withOptions({ maxRetries: 3 });
  await withFault({ fail_next: 1, fail_status: 503 }, async () => {
    const answer = await patient.chat.completions.create({ model: MODEL, messages: conversation("luck"), max_tokens: 5 });
    assert.equal(answer.usage.completion_tokens, 5);
  });
});
