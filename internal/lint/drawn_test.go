package lint

import "testing"

// TestEmbedderDraws bounds the code that a program links for the packages that it imports: lines of code of this module,
// as in TestCounts, and packages of other modules. What a program may do without stands behind a value that it names:
// mempool/stores, events, engine/cpu, grammar/jsonschema, tool, radixcache/missratio, tokenizer/tokenfile; what only tests,
// benchmarks and demonstrations need stands in a package of its own: engine/model/random, tokenizer/trainer. A bound may only fall.
// The last 100 lines are room for what CONTRIBUTING's recipes add: a newcomer who follows one needs it.
//
// Of the root's third-party packages protoactor needs 108: its package actor imports OpenTelemetry's SDK, a Prometheus
// exporter and protobuf. The others are xxh3 with cpuid, for block hashes. local draws the two of golang.org/x/text
// besides.
//
// The goal for the root with local is 41,000 lines. The policy session needs AwaitTools, forks and the lengths of histories (radixcache/forks.go)
// where they are: 230 lines.
func TestEmbedderDraws(t *testing.T) {
	for _, tc := range []struct {
		imports      []string
		lines, third int
	}{
		{[]string{"."}, 33_790, 110},
		{[]string{".", "./local"}, 41_200, 112},
	} {
		ours, third := drawn(t, tc.imports...)
		if lines := linesOf(t, ours); lines > tc.lines || len(third) > tc.third {
			t.Errorf("a program that imports %v links %d lines and %d third-party packages, at most %d and %d: go list -deps shows which", tc.imports, lines, len(third), tc.lines, tc.third)
		}
	}
}
