package extproc

import (
	"encoding/json"
	"io"
	"math/rand/v2"
	"testing"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

// BenchmarkProcess serves a request of 8,000 token ids and its short answer, without the network.
func BenchmarkProcess(b *testing.B) {
	f := newFleet(b, 3, nil)
	s := f.server(nil)
	random := rand.New(rand.NewPCG(1, 2))
	ids := make([]int, 8000)
	for i := range ids {
		ids[i] = 64 + random.IntN(192)
	}
	for b.Loop() {
		ids[0] = random.IntN(50_000)
		body, _ := json.Marshal(map[string]any{"prompt": ids, "max_tokens": 4})
		all := []*extprocv3.ProcessingRequest{head("POST", completions, false)}
		for ; len(body) > 16<<10; body = body[16<<10:] {
			all = append(all, bodyPart(string(body[:16<<10]), false))
		}
		all = append(all, bodyPart(string(body), true), answerHead("200", false, "content-type", "application/json"), answerPart(`{"usage":{"prompt_tokens":8000}}`, true))
		e := &envoy{ctx: b.Context(), next: sends(io.EOF, all...)}
		if err := s.Process(e); err != nil || len(e.got) < 4 {
			b.Fatal(err, len(e.got))
		}
	}
}
