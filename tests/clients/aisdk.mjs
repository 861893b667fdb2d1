// The Vercel AI SDK through its OpenAI-compatible provider: generateText, streamText, errors, retries, abort.
import assert from 'node:assert/strict';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { APICallError, generateText, RetryError, streamText } from 'ai';
import { check, env, failure, isCharge, recorder, refusals, runAll, scenario, unique } from './checks.mjs';

const provider = (options = {}) =>
  createOpenAICompatible({ name: 'svc', baseURL: `${env.BASE_URL}/v1`, apiKey: env.API_KEY, includeUsage: true, ...options });
const ask = ({ key, fetch, model = env.MODEL, what = scenario.answer, ...more } = {}) => ({
  model: provider({ ...(key && { apiKey: key }), ...(fetch && { fetch }) })(model),
  prompt: `${what} ${unique()}`,
  maxRetries: 0,
  ...more,
});
const quiet = { onError() {} }; // the SDK would print the errors we cause

function isContractError(error, status, code) {
  assert.ok(APICallError.isInstance(error), `${error?.constructor?.name}: ${error?.message}`);
  assert.equal(error.statusCode, status);
  assert.equal(error.data?.error?.code, code);
  assert.match(JSON.parse(error.responseBody).error.requestId, /^req_/);
}

check('generateText: text, finish reason, usage', async () => {
  const result = await generateText(ask());
  assert.ok(result.text.length > 0);
  assert.equal(result.finishReason, 'stop');
  assert.ok(result.usage.totalTokens > 0);
});

check('streamText: text, finish reason, usage; svc among the raw chunks', async () => {
  const result = streamText(ask({ includeRawChunks: true, ...quiet }));
  const parts = [];
  for await (const part of result.fullStream) parts.push(part);
  assert.deepEqual(parts.filter((part) => part.type === 'error'), []);
  assert.ok((await result.text).length > 0);
  assert.equal(await result.finishReason, 'stop');
  assert.ok((await result.usage).totalTokens > 0);
  const raw = parts.filter((part) => part.type === 'raw').map((part) => part.rawValue);
  isCharge(raw.at(-1).svc);
});

for (const [code, status, { key, scenario: what, temperature, model }] of refusals) {
  check(`error: ${status} ${code}${key === env.EXPIRED_KEY ? ' (expired key)' : ''}`, async () => {
    isContractError(await failure(generateText(ask({ key, what, temperature, model }))), status, code);
  });
  check(`error: ${status} ${code} of a stream${key === env.EXPIRED_KEY ? ' (expired key)' : ''}`, async () => {
    const result = streamText(ask({ key, what, temperature, model, ...quiet }));
    const errors = [];
    for await (const part of result.fullStream) if (part.type === 'error') errors.push(part.error);
    assert.equal(errors.length, 1);
    isContractError(errors[0], status, code);
  });
}

check('error: content in parts is refused with the field', async () => {
  const parts = [{ type: 'text', text: 'one' }, { type: 'text', text: 'two' }];
  const error = await failure(generateText({ ...ask(), prompt: undefined, messages: [{ role: 'user', content: parts }] }));
  isContractError(error, 400, 'invalid_request');
  assert.equal(JSON.parse(error.responseBody).error.field, 'messages[0].content');
});

check('error: 429 rate_limited carries retry-after-ms (this client ignores a Retry-After of 60)', async () => {
  let error;
  for (let i = 0; i < 4 && error?.statusCode !== 429; i++) {
    error = await generateText(ask({ key: env.LIMITED_KEY })).then(() => undefined, (e) => e);
  }
  isContractError(error, 429, 'rate_limited');
  assert.ok(Number(error.responseHeaders['retry-after-ms']) < 60_000);
});

check('retry: after an overload the client waits as long as it is told, then succeeds', async () => {
  const { calls, fetch } = recorder();
  const result = await generateText(ask({ fetch, what: scenario.overloadedOnce, maxRetries: 1 }));
  assert.ok(result.text.length > 0);
  assert.deepEqual(calls.map((c) => c.status), [503, 200]);
  const waited = calls[1].at - calls[0].at;
  assert.ok(waited >= Number(calls[0].header('retry-after-ms')) - 50, `waited ${waited} ms`);
});

check('retry: an overload that lasts is asked as often as the caller allows', async () => {
  const { calls, fetch } = recorder();
  const error = await failure(generateText(ask({ fetch, what: scenario.overloaded, maxRetries: 1 })));
  assert.ok(RetryError.isInstance(error), error?.constructor?.name);
  isContractError(error.lastError, 503, 'provider_overloaded');
  assert.equal(calls.length, 2);
});

check('retry: an empty wallet and a bad key are asked once', async () => {
  for (const key of [env.POOR_KEY, env.REVOKED_KEY]) {
    const { calls, fetch } = recorder();
    await failure(generateText(ask({ key, fetch, maxRetries: 2 })));
    assert.equal(calls.length, 1);
  }
});

check('stream: a failure after the first text is an error part, and no finish reason pretends success', async () => {
  const result = streamText(ask({ what: scenario.broken, ...quiet }));
  let text = '';
  const errors = [];
  const finishes = [];
  for await (const part of result.fullStream) {
    if (part.type === 'text-delta') text += part.text;
    if (part.type === 'error') errors.push(part.error);
    if (part.type === 'finish') finishes.push(part.finishReason);
  }
  assert.ok(text.length > 0);
  assert.ok(errors.length > 0);
  assert.ok(!finishes.includes('stop'), `finished with ${finishes}`);
});

check('abort: a stream can be aborted and the next call works', async () => {
  const controller = new AbortController();
  const result = streamText(ask({ what: scenario.slow, abortSignal: controller.signal, ...quiet }));
  const types = [];
  for await (const part of result.fullStream) {
    types.push(part.type);
    if (part.type === 'text-delta') controller.abort();
  }
  assert.ok(types.includes('text-delta'));
  assert.ok(types.includes('abort'), types.join(' '));
  assert.ok((await generateText(ask())).text.length > 0);
});

await runAll();
