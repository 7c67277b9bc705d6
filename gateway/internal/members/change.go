package members

import (
	"time"

	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/kv"
)

// Change is a change of a worker or of the fleet: one of the types of this file.
type Change any

// Joined adds a rank, which may be chosen once its worker is healthy. Blind says that the rank
// sends no events. An error from Apply refuses the worker.
type Joined struct {
	Rank  kv.Rank
	Card  *card.Card
	Blind bool
}

// Changed updates the models of a joined rank, or the maximal length of its prompts and outputs.
// An error from Apply refuses the worker.
type Changed struct {
	Rank kv.Rank
	Card *card.Card
}

// Health says whether a rank is healthy, draining or lost. It is sent after each successful
// probe, and when the worker is lost.
type Health struct {
	Rank  kv.Rank
	State State
}

// EventsLive reports that the events of a rank arrive, or no longer do.
type EventsLive struct {
	Rank kv.Rank
	Live bool
}

// Left removes a rank: it gets no more requests.
type Left struct{ Rank kv.Rank }

// Enrolled brings a new snapshot. It is sent under the fleet's lock.
type Enrolled struct{ Snapshot *Snapshot }

// StillLost reports that another probe of a lost worker has failed.
type StillLost struct {
	Member *Member
	Since  time.Time // time of its loss
}

// NameUnused reports that no worker has this name now.
type NameUnused struct{ Name string }

// TokenizerChanged replaces the tokenizer for reading prompts. An error from Apply keeps the previous one.
type TokenizerChanged struct{ Tokenizer *TokenizerSet }
