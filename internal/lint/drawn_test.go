package lint

import "testing"

// TestEmbedderDraws bounds the code that a program links for the packages that it imports: lines of code of this module,
// as in TestCounts, and packages of other modules. What a program may do without stands behind a door of its own:
// mempool/stores, events, engine/cpu. A bound may only fall: the
// second rose by 1,000 lines for drafted tokens, which each backend verifies and the scheduler guesses.
// Both rose by 1,000 for names of sessions and for the tokens of texts encoded before, and by 4,000 for sessions with tools: the parser
// of tool calls, which only the server drew before, is 1,500 of these. The last 100 are room for what CONTRIBUTING's
// recipes add: a newcomer who follows one needs it.
//
// The goal for the root is 110 third-party packages. protoactor alone needs 108: its package actor imports
// OpenTelemetry's SDK, a Prometheus exporter and protobuf. The others are xxh3 with cpuid, for block hashes, the two of
// golang.org/x/text, and jsonschema-go, for tools of Go functions. local draws zap's ten besides, by engine/cpu.
func TestEmbedderDraws(t *testing.T) {
	for _, tc := range []struct {
		imports      []string
		lines, third int
	}{
		{[]string{"."}, 39_100, 113},
		{[]string{".", "./local"}, 47_300, 123},
	} {
		ours, third := drawn(t, tc.imports...)
		if lines := linesOf(t, ours); lines > tc.lines || len(third) > tc.third {
			t.Errorf("a program that imports %v links %d lines and %d third-party packages, at most %d and %d: go list -deps shows which", tc.imports, lines, len(third), tc.lines, tc.third)
		}
	}
}
