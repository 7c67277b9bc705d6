// Package opticks owns a public-domain English text for tests, examples and benchmarks: an excerpt of
// Isaac Newton's Opticks, 4th edition, 1730. It is never part of a server: only tests, tools and
// examples import it.
//
// It also returns parts of the text for prompts: paragraphs, to serve as shared context, and real
// questions, since the third book ends with Newton's queries. All functions are pure, may be called
// from any goroutine, and always return the same parts in the same order.
//
//	context := opticks.Paragraphs()[0]
//	for _, question := range opticks.Questions() {
//		prompt := context + "\n\n" + question
//		...
//	}
//
// LICENSE names the source of the text and the changes that were made to it.
package opticks
