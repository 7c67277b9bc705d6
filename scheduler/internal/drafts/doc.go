// Package drafts owns guesses at the tokens that will follow a sequence, the record of how often
// guesses were right, and the choice of the number that a step verifies. It never decides a token:
// the backend samples at each guessed position as it would have sampled anyway, so a wrong guess
// costs time and changes nothing. The owner of the scheduler calls it.
//
// Each [Source] of guesses has a file. A [Sequence] reads the tokens of one sequence as they come,
// and all its sources guess at each token, whether or not a step verifies the guess. So the
// record knows how good a source is before the first draft, and while none is worth its time:
//
//	seq := drafts.NewSequence(drafts.Origin{Prompt: len(prompt), Limit: limit})
//	seq.Take(tokens, &record, most)           // after each step
//	offer, ok := seq.Offer(tokens, most, step.Floor(), &record, &arena)
//	chooser.Choose(offers, step)              // sets Offer.Take: the guesses to verify
//
// In steady state nothing is allocated, and all methods depend on their arguments alone, so a
// replay makes the same drafts.
package drafts
