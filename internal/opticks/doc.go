// Package opticks owns a public-domain English text for tests, examples and
// benchmarks: an excerpt of Isaac Newton's Opticks, 4th edition, 1730. It never
// ships in a server: only tests, tools and examples import it.
//
// Besides running text it has what prompts are made of: paragraphs to serve as
// shared context and real questions, for the third book ends with Newton's
// famous queries. Everything here is a pure function and may be called from any
// goroutine; the order of what it returns never changes.
//
//	context := opticks.Paragraphs()[0]
//	for _, question := range opticks.Questions() {
//		prompt := context + "\n\n" + question
//		...
//	}
//
// Where the text comes from and what was done to it stands in LICENSE.
package opticks
