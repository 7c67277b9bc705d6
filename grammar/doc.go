// Package grammar owns what the text of an output may be and where it ends: rules
// compiled to automata over bytes, masks over tokens, stop strings. It never
// samples, never runs a model and knows no clock.
//
// A [Vocabulary] and [Stops] are immutable and shared by any number of goroutines. A
// [Compiler], and after it its [Grammar] with all its [Matcher]s, belong to one
// goroutine at a time.
//
//	rules, err := grammar.ParseRegexp(`(yes|no), because [^.]{1,200}\.`)
//	compiler, err := grammar.NewCompiler(vocabulary, rules, grammar.Limits{})
//	for done := false; !done; { // look at the clock here
//		done, err = compiler.Run(10_000)
//	}
//	m := compiler.Grammar().NewMatcher()
//	for !m.MustEnd() {
//		m.Mask(allowed) // and the end of text where m.CanEnd()
//		m.Accept(sample(allowed))
//	}
//
// # How
//
// Rules that call themselves, long repeats and parts that are used often become
// units: deterministic automata whose edges are bytes or calls of other units. What
// was matched so far is a set of stacks of frames, nearly always one. Cells of the
// stacks are shared, and a unit that several stacks enter at one byte is entered
// once, to return to all of them (the graph-structured stack of Tomita, 1987). Long
// repeats are not written out: a frame counts.
//
// Compiling walks the trie of the vocabulary once from each node, not knowing what
// is below on the stack: that gives the tokens that end within the unit, and the
// places in the trie where the unit may end before the token does. A mask is the
// former, and short walks from the latter with what is really below. In a counting
// unit each token has the count that it needs, so that one walk does for all counts.
// Masks are remembered, for a bounded number of stacks.
//
// Source of the split of tokens by whether they depend on the stack: Dong et al.,
// XGrammar, 2024.
//
// # Limits
//
// [Limits] bound memory while compiling and after. A text that can be read in over
// 256 ways at once is too ambiguous to compile; where that comes about at run time
// only, surplus ways are dropped: less is allowed then than the rules say, never
// more.
package grammar
