// Package speculate owns loads for speculative decoding and plays them on nodes with drafts off and
// on, in turns. It measures through the public methods of nodes; it never chooses a draft. Its
// functions may be called from any goroutine, and wait until all that they started has ended.
//
//	load, err := speculate.Open("rewrite")
//	c, err := speculate.Compare(ctx, load, speculate.Config{Open: open}, nil)
//	fmt.Println(c.Ratio, c.Identical)
//
// A task has a prompt and the output that a good model gives. A small model would answer otherwise,
// or drift into repetitions that are easy to guess. So by default a wrapper of the backend makes the
// model sample that output: the backend computes all that it computes anyway, and the speed depends
// on the load and not on the model's knowledge.
package speculate
