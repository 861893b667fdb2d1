// LangChain's ChatOpenAI: invoke, stream, errors and how it classifies them, its own retries, abort.
import assert from 'node:assert/strict';
import { ChatOpenAI } from '@langchain/openai';
import { check, env, failure, recorder, refusals, runAll, scenario, unique } from './checks.mjs';

const chat = ({ key = env.API_KEY, fetch, ...more } = {}) =>
  new ChatOpenAI({
    model: env.MODEL,
    apiKey: key,
    maxRetries: 0,
    timeout: 30_000,
    configuration: { baseURL: `${env.BASE_URL}/v1`, ...(fetch && { fetch }) },
    ...more,
  });
const prompt = (what = scenario.answer) => `${what} ${unique()}`;

async function drain(stream) {
  let text = '';
  let usage;
  for await (const chunk of stream) {
    text += chunk.text;
    usage = chunk.usage_metadata ?? usage;
  }
  return { text, usage };
}

check('invoke: text, usage, model', async () => {
  const message = await chat().invoke(prompt());
  assert.ok(message.text.length > 0);
  assert.ok(message.usage_metadata.total_tokens > 0);
  assert.equal(message.response_metadata.finish_reason, 'stop');
});

check('stream: text and usage', async () => {
  const { text, usage } = await drain(await chat().stream(prompt()));
  assert.ok(text.length > 0);
  assert.ok(usage.total_tokens > 0);
});

for (const [code, status, { key, scenario: what, ...options }] of refusals) {
  check(`error: ${status} ${code}${key === env.EXPIRED_KEY ? ' (expired key)' : ''}`, async () => {
    const model = chat({ ...(key && { key }), ...options });
    for (const attempt of [() => model.invoke(prompt(what)), async () => drain(await model.stream(prompt(what)))]) {
      const error = await failure(attempt());
      if (code === 'context_too_long') {
        assert.equal(error.name, 'ContextOverflowError', error.message);
        continue;
      }
      assert.equal(error.status, status, error.message);
      assert.equal(error.code, code);
      assert.match(error.requestID, /^req_/);
    }
  });
}

check('retry: after an overload it succeeds', async () => {
  const { calls, fetch } = recorder();
  const message = await chat({ fetch, maxRetries: 1 }).invoke(prompt(scenario.overloadedOnce));
  assert.ok(message.text.length > 0);
  assert.deepEqual(calls.map((c) => c.status), [503, 200]);
});

check('retry: an empty wallet and a revoked key are asked once', async () => {
  for (const key of [env.POOR_KEY, env.REVOKED_KEY]) {
    const { calls, fetch } = recorder();
    await failure(chat({ key, fetch, maxRetries: 2 }).invoke(prompt()));
    assert.equal(calls.length, 1);
  }
});

check('retry: rate_limited is not taken for a permanent lack of quota', async () => {
  const model = chat({ key: env.LIMITED_KEY });
  let error;
  for (let i = 0; i < 4 && error?.status !== 429; i++) error = await model.invoke(prompt()).then(() => undefined, (e) => e);
  assert.equal(error.status, 429);
  assert.equal(error.code, 'rate_limited');
  assert.doesNotMatch(error.message, /billing|credit balance|usage quota|will reset at|out of credits|insufficient quota/i);
});

check('stream: a failure after the first text rejects the iteration', async () => {
  let text = '';
  const error = await failure(
    (async () => {
      for await (const chunk of await chat().stream(prompt(scenario.broken))) text += chunk.text;
    })(),
  );
  assert.ok(text.length > 0);
  assert.ok(error instanceof Error);
});

check('abort: a stream can be aborted and the next call works', async () => {
  const controller = new AbortController();
  let text = '';
  await failure(
    (async () => {
      for await (const chunk of await chat().stream(prompt(scenario.slow), { signal: controller.signal })) {
        text += chunk.text;
        if (text) controller.abort();
      }
    })(),
  );
  assert.ok(text.length > 0);
  assert.ok((await chat().invoke(prompt())).text.length > 0);
});

await runAll();
