package members

import (
	"time"

	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/kv"
)

// Change is what has become of a worker, or of all: one of the types of this file.
type Change any

// Joined: a rank may be chosen once its worker is healthy. Blind: no events will tell what it
// holds. An error from Apply refuses the worker.
type Joined struct {
	Rank  kv.Rank
	Card  *card.Card
	Blind bool
}

// Changed: the models of a rank that has joined, or their length, are others. An error from
// Apply refuses the worker.
type Changed struct {
	Rank kv.Rank
	Card *card.Card
}

// Health: a rank is healthy, draining or lost. It is told after each probe.
type Health struct {
	Rank  kv.Rank
	State State
}

// Heard: the events of a rank come, or come no more.
type Heard struct {
	Rank kv.Rank
	Live bool
}

// Left: a rank gets no more requests.
type Left struct{ Rank kv.Rank }

// Enrolled: there is another snapshot. It is told under the fleet's lock.
type Enrolled struct{ Snapshot *Snapshot }

// Silent: a probe of a lost worker has failed again.
type Silent struct {
	Member *Member
	Since  time.Time // when it was lost
}

// Forgotten: no worker has the name any more.
type Forgotten struct{ Name string }

// Spoken: prompts are read by another tokenizer. An error from Apply leaves the one before.
type Spoken struct{ Tokenizer *TokenizerSet }
