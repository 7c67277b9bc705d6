package prompt

import "testing"

func BenchmarkRead(b *testing.B) {
	tok, tmpl := testTokenizer(b), testTemplate(b, "qwen.jinja")
	// English has about 4 bytes per token with this vocabulary; the count is reported.
	chatBody := conversationBody(30_000, 20)
	textBody := completionBody(30_000)
	longBody := conversationBody(600_000, 80) // an agent's conversation, of which a turn has all before it
	for _, c := range []struct {
		name  string
		kind  Kind
		body  string
		bytes int // size of the cache
	}{
		{"tokens/8k", Completions, tokenBody(8192), -1},
		{"text/8k/cache=cold", Completions, textBody, -1},
		{"text/8k/cache=warm", Completions, textBody, 64 << 20},
		{"chat/8k/cache=cold", Chat, chatBody, -1},
		{"chat/8k/cache=warm", Chat, chatBody, 64 << 20},
		{"chat/140k/cache=cold", Chat, longBody, -1},
		{"chat/140k/cache=warm", Chat, longBody, 64 << 20},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := testReader(b, Config{Tokenizer: tok, Template: tmpl, CacheBytes: c.bytes})
			body := []byte(c.body)
			var p Prompt
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if err := r.Read(c.kind, "", body, As{}, &p); err != nil || !p.Exact() {
					b.Fatal(err, p.Inexact)
				}
			}
			b.ReportMetric(float64(len(p.Tokens)), "tokens")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/1000/float64(b.N), "µs/request")
		})
	}
}

// BenchmarkNew measures the test of a tokenizer's special tokens.
func BenchmarkNew(b *testing.B) {
	tok := testTokenizer(b)
	for b.Loop() {
		if _, err := New(Config{Tokenizer: tok}); err != nil {
			b.Fatal(err)
		}
	}
}
