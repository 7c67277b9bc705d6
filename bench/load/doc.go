// Package load owns the load that is put on a server over HTTP: which requests go
// out and when, reading what streams back, and the figures of it. It knows servers
// by their OpenAI-compatible interface alone (ours, vLLM's, SGLang's, Ollama's); it
// never looks inside one, and starts none.
//
//	c, err := load.Dial(ctx, load.ClientConfig{URL: "http://127.0.0.1:8080"})
//	defer c.Close()
//	v, err := c.Probe(ctx, false)                       // token ids, or words
//	d := &load.Random{Vocabulary: v, InputTokens: 1024, OutputTokens: 128, Seed: 1}
//	r, err := load.Run(ctx, c, d, load.Config{Concurrency: 8, Requests: 100}, nil)
//	r.WriteTable(os.Stdout)
//
// In a closed loop a new request begins where one has ended, so a slow server is
// asked less; in an open loop requests arrive by a schedule, whatever the server
// does. Both are decided by seeds, not by the clock: [Arrivals.Schedule] and the data
// sets are pure functions.
//
// # Figures
//
// TTFT: from sending a request to the arrival of the first chunk that has output.
// ITL: between two such chunks, whatever number of tokens they hold. E2EL: until the
// last chunk of the answer. TPOT: (E2EL - TTFT) / (output tokens - 1), of requests with at
// least two tokens. A chunk arrives when the read that completes it returns. These are
// the definitions of vLLM's vllm/benchmarks/serve.py. Means are exact,
// percentiles are up to 0.1 % too high (three digits of an HDR histogram). Failed
// requests are in no figure but the counts of failures.
//
// Tokens are counted by the server's own usage. Where it gives none, output is
// counted by token_ids in the chunks, else by chunks, and input by what was sent;
// the result says so.
//
// [Run] owns its goroutines and waits for all of them. A [Client] and data sets are
// safe for concurrent use.
package load
