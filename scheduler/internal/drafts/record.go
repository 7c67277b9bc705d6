package drafts

// lengths is the number of classes of matches by length: see class.
const lengths = 8

// class returns the class of a match of that length in tokens: 3 or fewer, 4, to 6, to 8, to 12, to 16, to
// 24, more.
func class(match int) int {
	for i, most := range [lengths - 1]int{3, 4, 6, 8, 12, 16, 24} {
		if match <= most {
			return i
		}
	}
	return lengths - 1
}

// prior is the part of guesses that is right before anything is known, by class: between those of
// prose and of program text. As sources guess at every token, verified or not, it counts for some
// ten tokens only.
var prior = [lengths]float64{0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9}

const (
	// priorTries is the number of guesses that the prior counts as.
	priorTries = 8
	// shrink is the number of guesses of a sequence from which its own record counts as much as that
	// of all sequences.
	shrink = 4
	// memory is the number of guesses after which older ones count half.
	memory = 64
)

// Record counts the guesses by source and length of match, and the right ones. Later ones count
// more. The zero Record is empty.
type Record struct {
	counts [Sources][lengths]count
}

type count struct{ tries, right float64 }

// learn counts a guess.
func (r *Record) learn(source Source, match int, right bool) {
	c := &r.counts[source][class(match)]
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
func (r *Record) rate(one *Record, source Source, match int) float64 {
	i := class(match)
	all, own := r.counts[source][i], one.counts[source][i]
	rate := (all.right + float64(priorTries*prior[i])) / (all.tries + priorTries)
	return (own.right + float64(shrink*rate)) / (own.tries + shrink)
}
