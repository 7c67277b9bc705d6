package fleet

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/coppice-llm/coppice/router"
)

// TestFigures compares the tokens that fleets compute with testdata/figures.txt. After an
// intended change, rewrite the file and review the difference:
//
//	go test ./bench/fleet -run TestFigures -rewrite
func TestFigures(t *testing.T) {
	notUnderInvariants(t)
	datadriven.RunTest(t, "testdata/figures.txt", func(t *testing.T, d *datadriven.TestData) string {
		var kind Kind
		var name, text string
		d.ScanArgs(t, "kind", &text)
		d.ScanArgs(t, "trace", &name)
		if err := kind.UnmarshalText([]byte(text)); err != nil {
			d.Fatalf(t, "%v", err)
		}
		trace := generated(t, name, 200, 4)
		var b strings.Builder
		for _, policy := range router.Policies() {
			r := played(t, Config{Workers: 4, Kind: kind, Policy: policy, Rate: 40, KVTokens: 1 << 15, Seed: 7}, trace)
			fmt.Fprintf(&b, "%v: prompt %d cached %d promised %d computed %d output %d evicted %d\n",
				policy, r.PromptTokens, r.CachedTokens, r.PromisedTokens, r.ComputedTokens, r.OutputTokens, r.EvictedBlocks)
		}
		return b.String()
	})
}
