package kv

import "testing"

// BenchmarkHasher hashes the blocks of a prompt of 8,192 tokens, as a tree with events does
// with new blocks.
func BenchmarkHasher(b *testing.B) {
	const blockTokens = 16
	tokens := make([]Token, 8192)
	for i := range tokens {
		tokens[i] = Token(i * 31 % 128000)
	}
	var last BlockHash
	b.ReportAllocs()
	for b.Loop() {
		h := NewHasher(Namespace{}, blockTokens)
		for i := 0; i < len(tokens); i += blockTokens {
			last, _ = h.Next(tokens[i : i+blockTokens])
		}
	}
	if last == 0 {
		b.Fatal("no hash")
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(tokens)), "ns/token")
}
