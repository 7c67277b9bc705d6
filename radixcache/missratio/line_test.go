package missratio

import (
	"math/rand/v2"
	"testing"
)

// fill returns a full line of random walks, some with a negative number of tokens, and the
// number of tokens touched after each of them.
func fill(size int, rng *rand.Rand) (l line, after []int) {
	l, after = newLine(size), make([]int, size)
	for i := range size {
		tokens := rng.IntN(100) - 10
		l.add(l.append(walk{end: i + 1}), tokens)
		for j := range i {
			after[j] += tokens
		}
	}
	return l, after
}

func TestCompactingChangesNoAnswer(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	l, after := fill(300, rng)
	refers := make([]bool, 300)
	for i := range refers {
		if refers[i] = rng.IntN(3) == 0; l.after(uint32(i)) != after[i] {
			t.Fatalf("after walk %d: %d, want %d", i, l.after(uint32(i)), after[i])
		}
	}
	const limit = 9000
	moved := l.compact(limit, refers)
	gone := 0
	for i, to := range moved {
		switch {
		case to == forgotten:
			if gone++; after[i] < limit {
				t.Errorf("walk %d is forgotten after only %d tokens", i, after[i])
			}
		case refers[i] && (l.after(to) != after[i] || l.walks[to].end != i+1):
			t.Errorf("after walk %d: %d, want %d; its end %d", i, l.after(to), after[i], l.walks[to].end)
		}
	}
	if gone == 0 || len(l.walks) > 225 || l.full() {
		t.Errorf("%d walks forgotten, %d left of 300", gone, len(l.walks))
	}
}

func TestCompactingMergesTheOldest(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	l, after := fill(300, rng)
	total, refers := l.total, make([]bool, 300)
	for i := range refers {
		refers[i] = true
	}
	moved := l.compact(1<<40, refers)
	if len(l.walks) != 150 || l.total != total {
		t.Fatalf("%d walks of %d tokens, want 150 of %d", len(l.walks), l.total, total)
	}
	for i, to := range moved {
		if pair := i | 1; int(to) != i/2 || l.after(to) != after[pair] || l.walks[to].end != 0 {
			t.Errorf("walk %d went to %d, after it %d, want %d", i, to, l.after(to), after[pair])
		}
	}
}
