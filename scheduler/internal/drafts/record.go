package drafts

// class is a class of guesses that are right about equally often: by the length of the match before the
// guess, and by how many places of the text agree with it.
type class uint8

const (
	lengths = 8               // classes of lengths: see ofLength
	views   = 4               // see view
	none    = lengths * views // no guess
)

// view tells how far the places that match agree about the next token.
type view uint8

const (
	lone  view = iota // one place matches
	sure              // all of several places agree
	most              // at least half of them agree with the guess
	split             // fewer agree
)

// ofLength returns the class of a guess after a match of that number of tokens: 3 or fewer, 4, to 6, to
// 8, to 12, to 16, to 24, more.
func ofLength(match int, v view) class {
	for i, most := range [lengths - 1]int{3, 4, 6, 8, 12, 16, 24} {
		if match <= most {
			return class(i*views) + class(v)
		}
	}
	return class((lengths-1)*views) + class(v)
}

// prior returns the part of guesses of a class that is right before anything is known: between those of
// prose and of program text. As sources guess at every token, verified or not, it counts for some ten
// tokens only.
func prior(c class) float64 {
	p := [lengths]float64{0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9}[c/views]
	switch view(c % views) {
	case sure:
		return (1 + p) / 2
	case split:
		return p / 2
	}
	return p
}

const (
	// priorTries is the number of guesses that the prior counts as.
	priorTries = 8
	// shrink is the number of guesses of a sequence from which its own record counts as much as that
	// of all sequences.
	shrink = 4
	// memory is the number of guesses after which older ones count half.
	memory = 64
)

// Record counts the guesses by source and class, and the right ones. Later ones count
// more. The zero Record is empty.
type Record struct {
	counts [Sources][none]count
}

type count struct{ tries, right float64 }

// learn counts a guess.
func (r *Record) learn(source Source, of class, right bool) {
	c := &r.counts[source][of]
	if c.tries++; right {
		c.right++
	}
	if c.tries >= 2*memory {
		c.tries /= 2
		c.right /= 2
	}
}

// rate returns the probability that a guess of a sequence is right. r is the record of all
// sequences and one that of the sequence. With 8 tries of the sequence, 2 of them right, and a rate
// of 0.8 for all sequences, the rate is (2 + 4·0.8) / (8 + 4) = 0.43.
func (r *Record) rate(one *Record, source Source, c class) float64 {
	all, own := &r.counts[source][c], &one.counts[source][c]
	rate := (all.right + float64(priorTries*prior(c))) / (all.tries + priorTries)
	return (own.right + float64(shrink*rate)) / (own.tries + shrink)
}
