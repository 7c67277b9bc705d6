package kvindex_test

import (
	"fmt"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router/kvindex"
)

// Two workers announce their blocks; a lookup returns how much of a prompt each has.
func ExampleIndex() {
	x, err := kvindex.New(kvindex.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	var prompt kvindex.TokensWithHashes
	prompt.Reset(make([]kv.Token, 64), kv.Namespace{})
	a, b := kv.Rank{Worker: 1}, kv.Rank{Worker: 2}
	for _, h := range []kv.Rank{a, b} {
		if _, err := x.Store(h, prompt.Run(16, 0)); err != nil {
			fmt.Println(err)
		}
	}
	x.Remove(b, prompt.Hashes(16)[3:])
	fmt.Println(x.Find(prompt.Hashes(16), nil))

	x.Swap(a, b)
	fmt.Println(x.Held(a), len(x.DumpHolder(b, nil)))
	x.Forget(b)
	fmt.Println(x.Find(prompt.Hashes(16), nil))
	// Output:
	// [{2/0 3} {1/0 4}]
	// 3 1
	// [{1/0 3}]
}
