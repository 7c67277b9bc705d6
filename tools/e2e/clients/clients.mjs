// JavaScript clients against a running server, each with its defaults.
//
//   python3 clients/install.py DIR
//   node clients/clients.mjs DIR/js http://127.0.0.1:8080 demo [tries [CLIENT/CASE,...]]
//
// It asks and prints what cases.py does; the last argument has the cases that are not run.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [dir, url, model, tries = '1', skipped = ''] = process.argv.slice(2);
const skip = new Set(skipped.split(','));
const require = createRequire(pathToFileURL(dir + '/index.js'));
const load = async (name) => import(pathToFileURL(require.resolve(name)));
const { z } = await load('zod');

const weather = z.object({ kind: z.enum(['sun', 'rain', 'snow']), cold: z.boolean(), days: z.number().int() });
const place = z.object({ city: z.enum(['Paris', 'London']), days: z.number().int() }).strict();
const columns = ['text', 'stream', 'tools', 'structured', 'second turn', 'third turn', 'usage'];

const system = 'Be brief.';
const question = 'What is the capital of France?';
const ask = 'What will the weather be like in Paris in the next 3 days? Call the tool, then tell me.';
const again = 'Which city did I ask about?';
const report = 'It will rain for 3 days, and it will be cold. Give me this weather: its kind, whether it is cold, and the days.';
const result = 'fog, 13 degrees';
const about = 'The weather of the next days.';

function check(ok, ...what) { if (!ok) throw new Error(what.map((w) => JSON.stringify(w)).join(' ').slice(0, 400)); }
const counted = (prompt, output, total) => check(prompt > 0 && output > 0 && total === prompt + output, 'usage', prompt, output, total);

// A client is a function of the URL of a case and of the results that its cases share. It returns a function for each case.
const clients = {
  async ollama(base, once) {
    const { Ollama } = await load('ollama');
    const api = new Ollama({ host: base.replace(/\/v1$/, '') });
    const messages = [{ role: 'system', content: system }, { role: 'user', content: question }];
    const asked = [{ role: 'system', content: system }, { role: 'user', content: ask }];
    const tools = [{ type: 'function', function: { name: 'forecast', description: about, parameters: z.toJSONSchema(place) } }];
    const whole = () => once('whole', () => api.chat({ model, messages }));
    const streamed = () => once('streamed', async () => {
      let text = '', last;
      for await (const part of await api.chat({ model, messages, stream: true })) {
        text += part.message.content;
        last = part;
      }
      return { text, last };
    });
    const called = () => once('called', async () => (await api.chat({ model, messages: asked, tools })).message);
    const results = (m) => (m.tool_calls ?? []).map((t) => ({ role: 'tool', tool_name: t.function.name, content: result }));
    const conversation = () => once('conversation', async () => {
      const m = await called();
      const turns = [...asked, m, ...results(m)];
      return [...turns, (await api.chat({ model, messages: turns, tools })).message];
    });
    const said = (m) => m.content || JSON.stringify((m.tool_calls ?? []).map((t) => t.function.arguments));
    return {
      text: async () => {
        check((await api.list()).models.some((m) => m.name.replace(/:latest$/, '') === model), 'not listed');
        check((await api.show({ model })).capabilities.includes('completion') && (await api.ps()).models.length > 0, 'not described');
        check((await api.pull({ model })).status === 'success', 'not pulled');
        check((await api.embed({ model, input: ['a', 'b'] })).embeddings.length === 2, 'not embedded');
        return (await whole()).message.content;
      },
      stream: async () => (await streamed()).text,
      tools: async () => ((await called()).tool_calls ?? []).map((t) => place.parse(t.function.arguments)),
      structured: async () => weather.parse(JSON.parse((await api.chat({ model, messages: [messages[0], { role: 'user', content: report }], format: z.toJSONSchema(weather) })).message.content)),
      'second turn': async () => said((await conversation()).at(-1)),
      'third turn': async () => {
        const turns = await conversation();
        return said((await api.chat({ model, messages: [...turns, ...results(turns.at(-1)), { role: 'user', content: again }], tools })).message);
      },
      usage: async () => {
        for (const r of [await whole(), (await streamed()).last]) counted(r.prompt_eval_count, r.eval_count, r.prompt_eval_count + r.eval_count);
        return true;
      },
    };
  },
  async openai(base, once) {
    const { default: OpenAI } = await load('openai');
    const { zodResponseFormat, zodFunction } = await load('openai/helpers/zod');
    const c = new OpenAI({ baseURL: base, apiKey: 'none' }).chat.completions;
    const messages = [{ role: 'system', content: system }, { role: 'user', content: question }];
    const asked = [{ role: 'system', content: system }, { role: 'user', content: ask }];
    const tools = [zodFunction({ name: 'forecast', description: about, parameters: place })];
    const whole = () => once('whole', () => c.create({ model, messages }));
    const streamed = () => once('streamed', async () => {
      let text = '', usage;
      for await (const chunk of await c.create({ model, messages, stream: true, stream_options: { include_usage: true } })) {
        text += chunk.choices[0]?.delta.content ?? '';
        usage = chunk.usage ?? usage;
      }
      return { text, usage };
    });
    const called = () => once('called', async () => {
      const choice = (await c.parse({ model, messages: asked, tools, tool_choice: 'required' })).choices[0];
      check(choice.finish_reason === 'tool_calls', choice);
      return choice.message;
    });
    const results = (m) => (m.tool_calls ?? []).map((t) => ({ role: 'tool', tool_call_id: t.id, content: result }));
    const conversation = () => once('conversation', async () => {
      const m = await called();
      const turns = [...asked, m, ...results(m)];
      return [...turns, (await c.create({ model, messages: turns, tools })).choices[0].message];
    });
    return {
      text: async () => (await whole()).choices[0].message.content,
      stream: async () => (await streamed()).text,
      tools: async () => {
        const s = await c.stream({ model, messages: asked, tools, tool_choice: { type: 'function', function: { name: 'forecast' } } }).finalChatCompletion();
        place.parse(s.choices[0].message.tool_calls[0].function.parsed_arguments);
        return (await called()).tool_calls.map((t) => place.parse(t.function.parsed_arguments));
      },
      structured: async () => {
        const answer = await c.parse({ model, messages: [messages[0], { role: 'user', content: report }], response_format: zodResponseFormat(weather, 'weather') });
        return weather.parse(answer.choices[0].message.parsed);
      },
      'second turn': async () => {
        const m = (await conversation()).at(-1);
        return m.content || JSON.stringify((m.tool_calls ?? []).map((t) => t.function.arguments));
      },
      'third turn': async () => {
        const turns = await conversation();
        const then = [...turns, ...results(turns.at(-1)), { role: 'user', content: again }];
        return (await c.create({ model, messages: then, tools })).choices[0].message.content ?? '';
      },
      usage: async () => {
        for (const u of [(await whole()).usage, (await streamed()).usage]) counted(u.prompt_tokens, u.completion_tokens, u.total_tokens);
        return true;
      },
    };
  },

  async ai(base, once) {
    const { createOpenAICompatible } = await load('@ai-sdk/openai-compatible');
    const lm = createOpenAICompatible({ name: 'local', baseURL: base, apiKey: 'none' })(model);
    return vercel(lm, createOpenAICompatible({ name: 'local', baseURL: base, apiKey: 'none', supportsStructuredOutputs: true })(model), once);
  },

  async 'ai-openai'(base, once) {
    const { createOpenAI } = await load('@ai-sdk/openai');
    const lm = createOpenAI({ baseURL: base, apiKey: 'none' })(model); // by default a model of /v1/responses
    return vercel(lm, lm, once);
  },

  async 'openai-responses'(base, once) {
    const { default: OpenAI } = await load('openai');
    const { zodTextFormat, zodResponsesFunction } = await load('openai/helpers/zod');
    const c = new OpenAI({ baseURL: base, apiKey: 'none' }).responses;
    const tools = [zodResponsesFunction({ name: 'forecast', description: about, parameters: place })];
    const create = (input, more) => c.create({ model, instructions: system, input, ...more });
    const calls = (r) => r.output.filter((o) => o.type === 'function_call');
    const results = (r) => calls(r).map((o) => ({ type: 'function_call_output', call_id: o.call_id, output: result }));
    const said = (r) => r.output_text || JSON.stringify(calls(r).map((o) => o.arguments));
    const whole = () => once('whole', () => create(question));
    const streamed = () => once('streamed', async () => {
      let text = '', last;
      for await (const event of await create(question, { stream: true })) {
        if (event.type === 'response.output_text.delta') text += event.delta;
        last = event;
      }
      check(['response.completed', 'response.incomplete'].includes(last.type), last.type);
      return { text, usage: last.response.usage };
    });
    const called = () => once('called', () => c.parse({ model, input: ask, tools, tool_choice: 'required' }));
    const conversation = () => once('conversation', async () => {
      const r = await called();
      return create([{ role: 'user', content: ask }, ...r.output, ...results(r)], { tools });
    });
    return {
      text: async () => (await whole()).output_text,
      stream: async () => (await streamed()).text,
      tools: async () => calls(await called()).map((o) => place.parse(o.parsed_arguments)),
      structured: async () => (await c.parse({ model, input: report, text: { format: zodTextFormat(weather, 'weather') } })).output_parsed,
      'second turn': async () => said(await conversation()),
      'third turn': async () => {
        const last = await conversation();
        const r = await create([...results(last), { role: 'user', content: again }], { tools, previous_response_id: last.id });
        check(r.usage.input_tokens_details.cached_tokens > 0, r.usage);
        return said(r);
      },
      usage: async () => {
        for (const u of [(await whole()).usage, (await streamed()).usage]) counted(u.input_tokens, u.output_tokens, u.total_tokens);
        return true;
      },
    };
  },
};

clients['ai-anthropic'] = async (base, once) => {
  const { createAnthropic } = await load('@ai-sdk/anthropic');
  const { wrapLanguageModel, defaultSettingsMiddleware } = await load('ai');
  const middleware = defaultSettingsMiddleware({ settings: { maxOutputTokens: 600 } }); // its own default is 4096
  const lm = wrapLanguageModel({ model: createAnthropic({ baseURL: base, apiKey: 'none' })(model), middleware });
  return vercel(lm, lm, once);
};

clients.anthropic = async (base, once) => {
  const { default: Anthropic } = await load('@anthropic-ai/sdk');
  const api = new Anthropic({ baseURL: base.replace(/\/v1$/, ''), apiKey: 'none' });
  const c = api.messages;
  const tools = [{ name: 'forecast', description: about, input_schema: z.toJSONSchema(place) }];
  const create = (messages, more) => c.create({ model, max_tokens: 600, system, messages, ...more });
  const user = (content) => ({ role: 'user', content });
  const calls = (r) => r.content.filter((b) => b.type === 'tool_use');
  const results = (r) => calls(r).map((b) => ({ type: 'tool_result', tool_use_id: b.id, content: result }));
  const said = (r) => r.content.filter((b) => b.type === 'text').map((b) => b.text).join('') || JSON.stringify(calls(r).map((b) => b.input));
  const counts = (u) => counted(u.input_tokens + u.cache_read_input_tokens + u.cache_creation_input_tokens, u.output_tokens,
    u.input_tokens + u.cache_read_input_tokens + u.cache_creation_input_tokens + u.output_tokens);
  const whole = () => once('whole', () => create([user(question)]));
  const streamed = () => once('streamed', async () => {
    let text = '';
    const s = c.stream({ model, max_tokens: 600, system, messages: [user(question)] }).on('text', (t) => { text += t; });
    const final = await s.finalMessage();
    return { text, final };
  });
  const called = () => once('called', async () => {
    const r = await create([user(ask)], { tools, tool_choice: { type: 'any' } });
    check(r.stop_reason === 'tool_use', r);
    return r;
  });
  const conversation = () => once('conversation', async () => {
    const r = await called();
    const turns = [user(ask), { role: 'assistant', content: r.content }, user(results(r))];
    return { turns, last: await create(turns, { tools }) };
  });
  return {
    text: async () => {
      const r = await whole();
      const { input_tokens } = await c.countTokens({ model, system, messages: [user(question)] });
      check(input_tokens === r.usage.input_tokens + r.usage.cache_read_input_tokens, input_tokens, r.usage);
      for await (const m of api.models.list()) check(m.type === 'model', m);
      return said(r);
    },
    stream: async () => {
      const { text, final } = await streamed();
      check(said(final) === (text || '[]'), final);
      return text;
    },
    tools: async () => {
      const s = await c.stream({ model, max_tokens: 600, messages: [user(ask)], tools, tool_choice: { type: 'tool', name: 'forecast' } }).finalMessage();
      place.parse(calls(s)[0].input);
      return calls(await called()).map((b) => place.parse(b.input));
    },
    structured: async () => weather.parse(JSON.parse(said(await create([user(report)], { output_config: { format: { type: 'json_schema', schema: z.toJSONSchema(weather) } } })))),
    'second turn': async () => said((await conversation()).last),
    'third turn': async () => {
      const { turns, last } = await conversation();
      const given = last.content.length ? [{ role: 'assistant', content: last.content }] : [];
      const r = await create([...turns, ...given, user([...results(last), { type: 'text', text: again }])], { tools });
      check(r.usage.cache_read_input_tokens > 0, r.usage);
      return said(r);
    },
    usage: async () => {
      for (const u of [(await whole()).usage, (await streamed()).final.usage]) counts(u);
      return true;
    },
  };
};

// packages are those of clients with other names.
const packages = { 'openai-responses': 'openai', 'ai-openai': '@ai-sdk/openai', 'ai-anthropic': '@ai-sdk/anthropic', anthropic: '@anthropic-ai/sdk' };

// vercel returns the cases of the package ai, with a model of one of its providers. shaped answers by a schema.
async function vercel(lm, shaped, once) {
  const { generateText, streamText, generateObject, tool } = await load('ai');
  const forecast = tool({ description: about, inputSchema: place, execute: async () => result });
  const failed = [];
  const onError = (e) => failed.push(e);
  const first = () => once('first', () => generateText({ model: lm, system, prompt: question }));
  const called = () => once('called', async () => {
    const made = await generateText({ model: lm, system, prompt: ask, tools: { forecast }, toolChoice: 'required' });
    check(made.finishReason === 'tool-calls' && made.toolResults.length > 0, made.finishReason);
    return made;
  });
  const conversation = () => once('conversation', async () => {
    const messages = [{ role: 'user', content: ask }, ...(await called()).response.messages];
    const then = await generateText({ model: lm, system, tools: { forecast }, messages });
    return { then, messages: [...messages, ...then.response.messages] };
  });
  return {
    text: async () => (await first()).text,
    stream: async () => {
      let text = '';
      for await (const piece of streamText({ model: lm, system, prompt: question, onError }).textStream) text += piece;
      check(failed.length === 0, failed);
      return text;
    },
    tools: async () => {
      const streamed = streamText({ model: lm, system, prompt: ask, tools: { forecast }, toolChoice: 'required', onError });
      await streamed.consumeStream();
      check((await streamed.toolCalls).length > 0 && failed.length === 0, failed);
      return (await called()).toolCalls.map((t) => place.parse(t.input));
    },
    structured: async () => weather.parse((await generateObject({ model: shaped, system, prompt: report, schema: weather })).object),
    'second turn': async () => {
      const { then } = await conversation();
      return then.text || JSON.stringify(then.toolCalls.map((t) => t.input));
    },
    'third turn': async () => {
      const messages = [...(await conversation()).messages, { role: 'user', content: again }];
      return (await generateText({ model: lm, system, tools: { forecast }, messages })).text;
    },
    usage: async () => {
      const { usage } = await first();
      counted(usage.inputTokens, usage.outputTokens, usage.totalTokens);
      return true;
    },
  };
}

// sensible reports whether an answer is what a person would expect.
function sensible(column, got) {
  const same = (a, b) => Object.keys(b).every((k) => a[k] === b[k]);
  const has = (...words) => words.some((w) => got.toLowerCase().includes(w));
  if (typeof got === 'string') check(!/"name"\s*:\s*"forecast"/.test(got), 'a call that stays text:', got);
  switch (column) {
    case 'tools': return got.length === 1 && same(got[0], { city: 'Paris', days: 3 });
    case 'structured': return same(got, { kind: 'rain', cold: true, days: 3 });
    case 'second turn': return has('fog', '13');
    case 'usage': return true;
    default: return has('paris');
  }
}

// offers are the clients that can offer a tool and not require a call.
const offers = new Set(['ollama']);

// row runs a case. A model of random weights ends one answer in 300 before its first token: the case begins again then, if there are tries left.
async function row(name, column, kept, left) {
  const began = Date.now();
  let said;
  try {
    const once = async (what, f) => (kept[what] ??= await f());
    const cases = await clients[name](`${url}/${name}-js/${column.replace(' ', '-')}/v1`, once);
    const got = await cases[column]();
    if (!got && left > 1) return row(name, column, {}, left - 1);
    check(got !== undefined && got !== null, column, 'is', got);
    said = { valid: Boolean(got) || left < 1, sensible: sensible(column, got), got: (typeof got === 'string' ? got : JSON.stringify(got)).slice(0, 400) };
  } catch (err) {
    for (const k of Object.keys(kept)) delete kept[k];
    said = { valid: false, sensible: false, got: (err.name + ': ' + err.message + ' ' + (err.responseBody ?? '')).slice(0, 800) };
  }
  return { case: column, cell: !said.valid ? 'fault' : column === 'tools' && offers.has(name) ? 'offered' : 'yes', seconds: (Date.now() - began) / 1000, ...said };
}

for (const name of Object.keys(clients)) {
  const version = JSON.parse(readFileSync(dir + '/node_modules/' + (packages[name] ?? name) + '/package.json')).version;
  const kept = {};
  for (const column of columns) {
    if (skip.has(name + '-js/' + column)) continue;
    console.log(JSON.stringify({ client: name, language: 'JavaScript', version, ...(await row(name, column, kept, Number(tries))) }));
  }
}
