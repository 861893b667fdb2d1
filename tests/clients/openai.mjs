// The official openai client: classes, codes and request ids of errors, retries, streams with the svc block.
import assert from 'node:assert/strict';
import OpenAI from 'openai';
import { check, env, failure, isCharge, recorder, refusals, runAll, scenario, unique } from './checks.mjs';

const baseURL = `${env.BASE_URL}/v1`;
const client = (options = {}) => new OpenAI({ apiKey: env.API_KEY, baseURL, maxRetries: 0, timeout: 30_000, ...options });
const call = (what = scenario.answer, more = {}) => ({
  model: env.MODEL,
  messages: [{ role: 'user', content: `${what} ${unique()}` }],
  ...more,
});
const classes = {
  400: OpenAI.BadRequestError,
  401: OpenAI.AuthenticationError,
  402: OpenAI.APIError,
  403: OpenAI.PermissionDeniedError,
  404: OpenAI.NotFoundError,
  429: OpenAI.RateLimitError,
  502: OpenAI.InternalServerError,
  503: OpenAI.InternalServerError,
};
function isContractError(error, status, code) {
  assert.ok(error instanceof classes[status], `${error?.constructor?.name}: ${error?.message}`);
  assert.equal(error.status, status);
  assert.equal(error.code, code);
  assert.match(error.requestID, /^req_/);
  assert.equal(error.error.requestId, error.requestID, 'body and header name the same request');
}

check('models: the list holds the model, one page, and it can be retrieved', async () => {
  const ids = [];
  for await (const model of client().models.list()) ids.push(model.id);
  assert.ok(ids.includes(env.MODEL));
  const model = await client().models.retrieve(env.MODEL);
  assert.equal(model.id, env.MODEL);
  assert.equal(model.object, 'model');
});

check('chat: a whole completion with usage, svc and request id', async () => {
  const completion = await client().chat.completions.create(call());
  assert.match(completion.id, /^chatcmpl-/);
  assert.equal(completion.object, 'chat.completion');
  assert.equal(completion.model, env.MODEL);
  assert.equal(completion.choices[0].message.role, 'assistant');
  assert.ok(completion.choices[0].message.content.length > 0);
  assert.equal(completion.choices[0].finish_reason, 'stop');
  assert.equal(completion.usage.total_tokens, completion.usage.prompt_tokens + completion.usage.completion_tokens);
  isCharge(completion.svc);
  assert.match(completion._request_id, /^req_/);
});

check('chat: base URL with a trailing slash', async () => {
  const completion = await client({ baseURL: `${baseURL}/` }).chat.completions.create(call());
  assert.match(completion.id, /^chatcmpl-/);
});

check('stream: the order of the contract, one id, usage and svc only in the last chunk', async () => {
  const chunks = [];
  for await (const chunk of await client().chat.completions.create(call(scenario.answer, { stream: true }))) chunks.push(chunk);
  assert.ok(chunks.length >= 4);
  const [first] = chunks;
  const last = chunks.at(-1);
  const closing = chunks.at(-2);
  assert.equal(first.choices[0].delta.role, 'assistant');
  assert.equal(first.choices[0].delta.content, '');
  for (const chunk of chunks) {
    assert.equal(chunk.id, first.id);
    assert.equal(chunk.object, 'chat.completion.chunk');
    assert.equal(chunk.model, env.MODEL);
    assert.ok(Number.isInteger(chunk.created));
    assert.ok(!('error' in chunk));
  }
  for (const chunk of chunks.slice(0, -2)) {
    assert.equal(chunk.choices[0].finish_reason, null);
    assert.ok(!chunk.usage && !chunk.svc);
  }
  assert.deepEqual(closing.choices[0].delta, {});
  assert.equal(closing.choices[0].finish_reason, 'stop');
  assert.deepEqual(last.choices, []);
  assert.ok(last.usage.total_tokens > 0);
  isCharge(last.svc);
  const text = chunks.map((chunk) => chunk.choices[0]?.delta?.content ?? '').join('');
  assert.ok(text.length > 0);
});

check('stream: the stream() helper ends with the whole completion', async () => {
  const completion = await client().chat.completions.stream(call()).finalChatCompletion();
  assert.ok(completion.choices[0].message.content.length > 0);
  assert.equal(completion.choices[0].finish_reason, 'stop');
  assert.ok(completion.usage.total_tokens > 0);
});

for (const [code, status, { key, scenario: what, ...body }] of refusals) {
  for (const stream of [false, true]) {
    check(`error: ${status} ${code}${stream ? ' of a stream' : ''}${key === env.EXPIRED_KEY ? ' (expired key)' : ''}`, async () => {
      const error = await failure(
        client(key ? { apiKey: key } : {}).chat.completions.create(call(what, { ...body, stream })),
      );
      isContractError(error, status, code);
      if (code === 'invalid_request') assert.equal(error.error.field, 'temperature');
    });
  }
}

check('error: 404 not_found for endpoints that are not served', async () => {
  isContractError(await failure(client().embeddings.create({ model: env.MODEL, input: 'x' })), 404, 'not_found');
  const error = await failure(client().responses.create({ model: env.MODEL, input: 'x' }));
  isContractError(error, 404, 'not_found');
  assert.match(error.message, /\/v1\/chat\/completions/);
});

check('error: 429 rate_limited with Retry-After of 1 to 60 seconds and retry-after-ms beside it', async () => {
  const limited = client({ apiKey: env.LIMITED_KEY });
  let error;
  for (let i = 0; i < 4 && !error; i++) error = await limited.models.list().then(() => undefined, (e) => e); // a minute may end in between
  isContractError(error, 429, 'rate_limited');
  const seconds = Number(error.headers.get('retry-after'));
  const millis = Number(error.headers.get('retry-after-ms'));
  assert.ok(seconds >= 1 && seconds <= 60, `Retry-After ${seconds}`);
  assert.ok(millis > 0 && millis < 60_000, `retry-after-ms ${millis}`);
  assert.equal(error.error.retryAfter, seconds);
});

check('retry: refusals that a retry cannot mend are asked once', async () => {
  for (const [what, key] of [[scenario.answer, env.POOR_KEY], [scenario.answer, env.REVOKED_KEY], [scenario.refused, env.API_KEY]]) {
    const { calls, fetch } = recorder();
    await failure(client({ apiKey: key, maxRetries: 2, fetch }).chat.completions.create(call(what)));
    assert.equal(calls.length, 1, `${what}: ${calls.map((c) => c.status)}`);
  }
});

check('retry: a provider key that is refused says x-should-retry: false', async () => {
  const error = await failure(client().chat.completions.create(call(scenario.refused)));
  isContractError(error, 502, 'provider_error');
  assert.equal(error.headers.get('x-should-retry'), 'false');
});

check('retry: after an overload the client waits as long as it is told, then succeeds', async () => {
  const { calls, fetch } = recorder();
  const completion = await client({ maxRetries: 1, fetch }).chat.completions.create(call(scenario.overloadedOnce));
  assert.match(completion.id, /^chatcmpl-/);
  assert.deepEqual(calls.map((c) => c.status), [503, 200]);
  const waited = calls[1].at - calls[0].at;
  assert.ok(waited >= Number(calls[0].header('retry-after-ms')) - 50, `waited ${waited} ms`);
});

check('stream: a failure after the first text rejects the iteration with the code', async () => {
  const stream = await client().chat.completions.create(call(scenario.broken, { stream: true }));
  let text = '';
  let ended = false;
  const error = await failure(
    (async () => {
      for await (const chunk of stream) {
        text += chunk.choices[0]?.delta?.content ?? '';
        ended ||= Boolean(chunk.choices[0]?.finish_reason ?? chunk.usage ?? chunk.svc);
      }
    })(),
  );
  assert.ok(text.length > 0);
  assert.equal(ended, false, 'no finish_reason, usage or svc before the error');
  assert.ok(error instanceof OpenAI.APIError, error?.constructor?.name);
  assert.equal(error.code, 'provider_error');
  assert.match(error.error.requestId, /^req_/);
});

check('abort: leaving a stream, and aborting a call, leave the connection pool usable', async () => {
  const own = client();
  let pieces = 0;
  for await (const _ of await own.chat.completions.create(call(scenario.slow, { stream: true }))) if (++pieces === 3) break;
  assert.equal(pieces, 3);
  const controller = new AbortController();
  const stream = await own.chat.completions.create(call(scenario.slow, { stream: true }), { signal: controller.signal });
  for await (const _ of stream) controller.abort();
  const early = new AbortController();
  const aborted = failure(own.chat.completions.create(call(scenario.slow), { signal: early.signal }));
  early.abort();
  assert.ok((await aborted) instanceof OpenAI.APIUserAbortError);
  assert.match((await own.chat.completions.create(call())).id, /^chatcmpl-/);
});

check('keys: X-Api-Key wins over the Authorization that the client sends anyway', async () => {
  const completion = await client({ apiKey: 'unused', defaultHeaders: { 'X-Api-Key': env.API_KEY } }).chat.completions.create(call());
  assert.match(completion.id, /^chatcmpl-/);
});

check("keys: a call with the organization's own provider key is not charged", async () => {
  const completion = await client({ apiKey: env.BYOK_KEY }).chat.completions.create(call(), { headers: { 'x-svc-use-byok': 'true' } });
  isCharge(completion.svc, { byok: true });
});

check('bodies: what OpenAI knows and the contract does not is ignored; null means absent', async () => {
  const completion = await client().chat.completions.create(
    call(scenario.answer, { n: 3, store: true, user: 'u', response_format: { type: 'text' }, temperature: null, stop: null, max_completion_tokens: 50 }),
  );
  assert.equal(completion.choices.length, 1);
});

await runAll();
