// A client that is generated from the interface description: api.d.ts is made by openapi-typescript from what the server
// serves at /docs/openapi.json. tsc --strict compiles this file, and each @ts-expect-error is a mistake that it must find.
import createClient from 'openapi-fetch';
import type { components, paths } from './api.d.ts';

declare const process: { env: Record<string, string | undefined> };

function setting(name: string): string {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set`);
  return value;
}

function must(condition: boolean, what: string): asserts condition {
  if (!condition) throw new Error(what);
}

const client = createClient<paths>({
  baseUrl: setting('BASE_URL'),
  headers: { Authorization: `Bearer ${setting('API_KEY')}` },
});
const model = setting('MODEL');

// A model call, whole.
const call = await client.POST('/v1/chat/completions', {
  body: { model, messages: [{ role: 'user', content: 'Hello!' }] },
});
must(typeof call.data === 'object', `the call failed: ${JSON.stringify(call.error)}`); // a stream would be text
const completion: components['schemas']['ChatCompletion'] = call.data;
must(completion.choices[0]?.message.content !== '', 'the answer has no text');
must(BigInt(completion.svc.charged_micros) > 0n, 'nothing was charged');

// The same as a stream; its events are ChatChunk.
const streamed = await client.POST('/v1/chat/completions', {
  body: { model, messages: [{ role: 'user', content: 'Hello!' }], stream: true },
  parseAs: 'text',
});
must(typeof streamed.data === 'string', 'the stream failed');
const events = streamed.data.split('\n\n').filter((event) => event !== '');
must(events.pop() === 'data: [DONE]', 'the stream has no end');
const last: components['schemas']['ChatChunk'] = JSON.parse(events.at(-1)!.slice('data: '.length));
must(last.choices.length === 0 && last.usage !== undefined && last.svc?.byok === false, 'the last chunk has no charge');

// An agent, made and found in the list.
const made = await client.POST('/agents', { body: { name: 'Typed', model, maxTokens: 100 } });
must(made.data !== undefined, `creating an agent failed: ${JSON.stringify(made.error)}`);
const listed = await client.GET('/agents', { params: { query: { limit: 100 } } });
must(listed.data !== undefined, 'listing agents failed');
must(listed.data.data.some((agent) => agent.id === made.data.id), 'the agent is not in the list');
must(listed.data.nextCursor === null, 'there is another page');
const removed = await client.DELETE('/agents/{id}', { params: { path: { id: made.data.id } } });
must(removed.response.status === 204, 'deleting the agent failed');

// A refusal, with a code of the contract and where it is explained.
const refused = await client.GET('/agents/{id}', { params: { path: { id: made.data.id } } });
must(refused.error !== undefined, 'the agent is still there');
const code: components['schemas']['ErrorBody']['code'] = refused.error.error.code;
must(code === 'not_found', `the code is ${code}`);
must(refused.error.error.docsUrl === `${setting('BASE_URL')}/docs#not_found`, 'there is no docsUrl');

// What a compiler has to find. None of it runs.
export async function mistakes(): Promise<void> {
  // @ts-expect-error there is no such path
  await client.GET('/agent');
  // @ts-expect-error the model is missing
  await client.POST('/v1/chat/completions', { body: { messages: [] } });
  // @ts-expect-error there is no such role
  await client.POST('/v1/chat/completions', { body: { model, messages: [{ role: 'robot', content: '' }] } });
  // @ts-expect-error a text where a number belongs
  await client.POST('/agents', { body: { name: 'x', model, maxTokens: '100' } });
  // @ts-expect-error there is no such code
  must(code === 'not_fond', '');
}

console.log('typed client: 0 failed');
