// What the three client scripts share: their settings from the environment, a recorder of HTTP calls, and the list of
// checks, which prints one line each and sets the exit status. A missing setting is named; nothing is skipped.
import assert from 'node:assert/strict';

/** Settings the Go test passes. Each key belongs to an organization prepared for one purpose. */
const names = [
  'BASE_URL', // of the product, without /v1
  'MODEL', // a model whose provider is the scripted upstream
  'API_KEY', // live key with models:read chat:write, credits, a plan without limits
  'POOR_KEY', // organization without credits
  'SUSPENDED_KEY', // suspended organization
  'REVOKED_KEY',
  'EXPIRED_KEY',
  'NOSCOPE_KEY', // without chat:write
  'LIMITED_KEY', // plan of one request per minute
  'BYOK_KEY', // organization with its own provider key and no credits
];
const missing = names.filter((name) => !process.env[name]);
if (missing.length > 0) {
  console.error(`not set: ${missing.join(', ')}`);
  process.exit(2);
}
export const env = Object.fromEntries(names.map((name) => [name, process.env[name]]));

/**
 * What a message says so that the scripted upstream misbehaves. SCENARIOS, a JSON object, replaces these marks by those
 * of the upstream in use.
 */
export const scenario = {
  answer: 'scenario:ok', // answers, whole or streamed, finish reason stop
  refused: 'scenario:401', // refuses the provider's key
  failing: 'scenario:500',
  overloaded: 'scenario:503;ra=1', // with Retry-After: 1
  overloadedOnce: 'scenario:503-once', // the same to the first call with the same message, then answers
  tooLong: 'scenario:context-openai', // the vendor's 400 about its context length
  broken: 'scenario:reset;at=2', // two pieces of text, then the connection breaks
  slow: 'scenario:ok;n=20;delay=100', // 20 pieces over two seconds
  ...JSON.parse(process.env.SCENARIOS ?? '{}'),
};

/** A fetch that notes status and retry headers of every answer in calls. */
export function recorder() {
  const calls = [];
  const recordingFetch = async (url, init) => {
    const response = await fetch(url, init);
    calls.push({ at: Date.now(), status: response.status, header: (name) => response.headers.get(name) });
    return response;
  };
  return { calls, fetch: recordingFetch };
}

/** A value that makes a message its own, for scenarios that count. */
let serial = 0;
export const unique = () => `call-${process.pid}-${Date.now()}-${++serial}`;

/** The error a promise ends with; fails when it succeeds. */
export async function failure(promise) {
  let value;
  try {
    value = await promise;
  } catch (error) {
    return error;
  }
  assert.fail(`expected an error, got ${JSON.stringify(value)?.slice(0, 200)}`);
}

export function isCharge(svc, { byok = false } = {}) {
  assert.equal(typeof svc?.charged_micros, 'string', 'svc.charged_micros is a string');
  assert.match(svc.charged_micros, byok ? /^0$/ : /^\d+$/);
  assert.equal(svc.byok, byok);
}

/** Every refusal a client can cause by its key or its body: [code, status, change of a good call]. */
export const refusals = [
  ['invalid_request', 400, { temperature: 1.5e9 }],
  ['unsupported_model', 400, { model: 'no/such-model' }],
  ['context_too_long', 400, { scenario: scenario.tooLong }],
  ['invalid_api_key', 401, { key: 'ck_live_nobodygavethisone' }],
  ['invalid_api_key', 401, { key: env.EXPIRED_KEY }],
  ['api_key_revoked', 401, { key: env.REVOKED_KEY }],
  ['insufficient_credits', 402, { key: env.POOR_KEY }],
  ['organization_suspended', 402, { key: env.SUSPENDED_KEY }],
  ['insufficient_scope', 403, { key: env.NOSCOPE_KEY }],
  ['provider_error', 502, { scenario: scenario.failing }],
  ['provider_overloaded', 503, { scenario: scenario.overloaded }],
];

const checks = [];
export const check = (name, run) => checks.push({ name, run });

/** Runs all checks in order; each has a minute. */
export async function runAll() {
  let failed = 0;
  for (const { name, run } of checks) {
    let timer;
    const late = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error('not done within 60 s')), 60_000);
    });
    try {
      await Promise.race([run(), late]);
      console.log(`ok   ${name}`);
    } catch (error) {
      failed++;
      console.log(`FAIL ${name}: ${error?.stack ?? error}`);
    } finally {
      clearTimeout(timer);
    }
  }
  console.log(`${checks.length - failed} passed, ${failed} failed`);
  process.exit(failed === 0 ? 0 : 1);
}
