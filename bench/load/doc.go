// Package load owns the load on a server over HTTP: it decides which requests are sent
// and when, reads the streamed answers, and computes the figures. It uses nothing but
// the OpenAI-compatible API of a server (ours, vLLM's, SGLang's, Ollama's); it never
// looks inside a server and never starts one.
//
//	c, err := load.Dial(ctx, load.ClientConfig{URL: "http://127.0.0.1:8080"})
//	defer c.Close()
//	v, err := c.Probe(ctx, false)                       // token ids, or words
//	d := &load.Random{Vocabulary: v, InputTokens: 1024, OutputTokens: 128, Seed: 1}
//	r, err := load.Run(ctx, c, d, load.Config{Concurrency: 8, Requests: 100}, nil)
//	r.WriteTable(os.Stdout)
//
// In a closed loop a new request begins when one has ended, so a slow server gets
// fewer requests. In an open loop requests arrive by a schedule, independent of the
// server. Seeds decide both: [Arrivals.Schedule] and the data sets are pure functions.
//
// # Figures
//
//   - TTFT: from sending a request to the arrival of the first chunk with output.
//   - ITL: between two consecutive chunks with output, however many tokens they hold.
//   - E2EL: from sending a request to the last chunk of the answer.
//   - TPOT: (E2EL - TTFT) / (output tokens - 1), of requests with at least two tokens.
//
// A chunk arrives when the read that completes it returns. These are the definitions
// of vLLM's vllm/benchmarks/serve.py. Means are exact; percentiles are up to 0.1 % too
// high (an HDR histogram of three digits). Failed requests count in the numbers of
// failures only.
//
// Tokens are counted by the usage that the server reports. If it reports none, output
// is counted by token_ids in the chunks, else by chunks, and input by the tokens or
// words sent; Result.Notes then says so.
//
// [Run] owns its goroutines and waits for all of them. A [Client] and data sets are
// safe for concurrent use.
package load
