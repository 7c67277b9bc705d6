// Package grammar constrains the text of an output and finds its end: it owns rules compiled
// to automata over bytes, masks over tokens, and stop strings. It never samples, runs no model
// and reads no clock.
//
// A [Vocabulary] and [Stops] are immutable and may be shared by any number of goroutines. A
// [Compiler], and later its [Grammar] together with all [Matcher]s of it, may be used by one
// goroutine at a time.
//
//	rules, err := grammar.ParseRegexp(`(yes|no), because [^.]{1,200}\.`)
//	compiler, err := grammar.NewCompiler(vocabulary, rules, grammar.Limits{})
//	for done := false; !done; { // check a deadline here
//		done, err = compiler.Run(10_000)
//	}
//	m := compiler.Grammar().NewMatcher()
//	for !m.MustEnd() {
//		m.Mask(allowed) // if m.CanEnd(), allow the end-of-text token too
//		m.Accept(sample(allowed))
//	}
//
// # How it works
//
// Recursive rules, bodies of long repeats and parts that are used often become units:
// deterministic automata whose edges are bytes or calls of other units. The state of a match
// is a set of stacks of frames, nearly always a single stack. Stacks share their cells, and a
// unit that several stacks enter at the same byte is entered once and returns to all of them
// (the graph-structured stack of Tomita, 1987). A long repeat is not unrolled: its frame
// counts.
//
// Compiling walks the trie of the vocabulary once from each node of each unit, without knowing
// the stack below. The walk finds the tokens that end within the unit, on any stack below, and
// the exits: places in the trie where the unit may end before the token does. A mask is the
// tokens of the first kind, plus the results of short walks from the exits with the actual
// stack. In a counting unit each token is stored with the count that it needs, so one walk
// serves all counts. Masks of a bounded number of stack sets are cached.
//
// [Compiler.Around] makes outputs free text in which texts of the rules stand. Free text has no
// nodes: its mask is all tokens but those that complete the beginning of a text of the rules and
// go on as the rules do not.
//
// The split of tokens into those that depend on the stack and those that do not is from
// XGrammar (Dong et al., 2024).
//
// # Limits
//
// [Limits] bounds memory during compilation and after it. Rules under which some text can be
// read in over 256 ways at once are refused as too ambiguous. Where that arises only at run
// time, surplus ways are dropped: the matcher then allows fewer texts than the rules, never
// more.
package grammar
