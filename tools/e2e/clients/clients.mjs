// What JavaScript clients get from a running server, each with its defaults.
//
//   python3 clients/install.py DIR
//   node clients/clients.mjs DIR/js http://127.0.0.1:8080 demo [client...]
//
// It prints a line of JSON for each client, as clients.py does.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [dir, url, model, ...only] = process.argv.slice(2);
const base = url + '/v1';
const require = createRequire(pathToFileURL(dir + '/index.js'));
const load = async (name) => import(pathToFileURL(require.resolve(name)));
const { z } = await load('zod');

const weather = z.object({ kind: z.enum(['sun', 'rain', 'snow']), cold: z.boolean(), days: z.number().int() });
const place = z.object({ city: z.enum(['Paris', 'London']), days: z.number().int() });
const columns = ['text', 'stream', 'tools', 'structured', 'second turn', 'usage'];

function check(ok, ...what) { if (!ok) throw new Error(what.map((w) => JSON.stringify(w)).join(' ').slice(0, 400)); }
const counted = (prompt, output, total) => check(prompt > 0 && output > 0 && total === prompt + output, 'usage', prompt, output, total);

const clients = {
  async *openai() {
    const { default: OpenAI } = await load('openai');
    const { zodResponseFormat, zodFunction } = await load('openai/helpers/zod');
    const c = new OpenAI({ baseURL: base, apiKey: 'none' }).chat.completions;
    const messages = [{ role: 'system', content: 'Be brief.' }, { role: 'user', content: 'What is light?' }];
    const whole = await c.create({ model, messages });
    yield ['text', whole.choices[0].message.content];
    let text = '', usage;
    for await (const chunk of await c.create({ model, messages, stream: true, stream_options: { include_usage: true } })) {
      text += chunk.choices[0]?.delta.content ?? '';
      usage = chunk.usage ?? usage;
    }
    yield ['stream', text];
    const tools = [zodFunction({ name: 'forecast', parameters: place })];
    const called = (await c.parse({ model, messages, tools, tool_choice: 'required' })).choices[0];
    check(called.finish_reason === 'tool_calls', called);
    const streamed = await c.stream({ model, messages, tools, tool_choice: { type: 'function', function: { name: 'forecast' } } }).finalChatCompletion();
    place.parse(streamed.choices[0].message.tool_calls[0].function.parsed_arguments);
    yield ['tools', called.message.tool_calls.map((t) => place.parse(t.function.parsed_arguments))];
    yield ['structured', weather.parse((await c.parse({ model, messages, response_format: zodResponseFormat(weather, 'weather') })).choices[0].message.parsed)];
    const results = called.message.tool_calls.map((t) => ({ role: 'tool', tool_call_id: t.id, content: 'sunny' }));
    const then = await c.create({ model, messages: [...messages, called.message, ...results], tools });
    yield ['second turn', then.choices[0].message.content || then.choices[0].message.tool_calls];
    counted(whole.usage.prompt_tokens, whole.usage.completion_tokens, whole.usage.total_tokens);
    counted(usage.prompt_tokens, usage.completion_tokens, usage.total_tokens);
    yield ['usage', usage];
  },

  async *ai() {
    const { generateText, streamText, generateObject, tool } = await load('ai');
    const { createOpenAICompatible } = await load('@ai-sdk/openai-compatible');
    const lm = createOpenAICompatible({ name: 'local', baseURL: base, apiKey: 'none' })(model);
    const shaped = createOpenAICompatible({ name: 'local', baseURL: base, apiKey: 'none', supportsStructuredOutputs: true })(model);
    const first = await generateText({ model: lm, prompt: 'What is light?' });
    yield ['text', first.text];
    const failed = [];
    const onError = (e) => failed.push(e);
    const plain = streamText({ model: lm, prompt: 'What is light?', onError });
    let text = '';
    for await (const piece of plain.textStream) text += piece;
    check(failed.length === 0, failed);
    yield ['stream', text];
    const forecast = tool({ description: 'The weather of the next days.', inputSchema: place, execute: async ({ city }) => city + ': sun' });
    const called = await generateText({ model: lm, prompt: 'The weather?', tools: { forecast }, toolChoice: 'required' });
    check(called.finishReason === 'tool-calls' && called.toolResults.length > 0, called.finishReason);
    const streamed = streamText({ model: lm, prompt: 'The weather?', tools: { forecast }, toolChoice: 'required', onError });
    await streamed.consumeStream();
    check((await streamed.toolCalls).length > 0 && failed.length === 0, failed);
    yield ['tools', called.toolCalls];
    yield ['structured', (await generateObject({ model: shaped, prompt: 'The weather?', schema: weather })).object];
    const then = await generateText({ model: lm, tools: { forecast }, messages: [{ role: 'user', content: 'The weather?' }, ...called.response.messages, { role: 'user', content: 'And tomorrow?' }] });
    yield ['second turn', then.text || then.toolCalls];
    counted(first.usage.inputTokens, first.usage.outputTokens, first.usage.totalTokens);
    yield ['usage', first.usage];
  },
};

// row runs a client. A model of random weights ends one answer in 300 before its first token: the client begins again then.
async function row(name, tries = 3) {
  const cells = Object.fromEntries(columns.map((c) => [c, '–']));
  let at;
  try {
    for await (const [column, got] of clients[name]()) {
      at = column;
      const some = got && (got.length ?? 1);
      if (!some && tries > 1) return row(name, tries - 1);
      check(some, column, 'is', got);
      cells[column] = 'yes';
    }
  } catch (err) { cells['after ' + at] = (err.name + ': ' + err.message + ' ' + (err.responseBody ?? '')).slice(0, 600); }
  const version = JSON.parse(readFileSync(dir + '/node_modules/' + name + '/package.json')).version;
  return { client: name, language: 'JavaScript', version, cells };
}

for (const name of only.length ? only : Object.keys(clients)) console.log(JSON.stringify(await row(name)));
