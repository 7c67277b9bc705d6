package scheduler

import (
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/internal/enum"
)

// Moment is a kind of event in a request's life.
type Moment uint8

// The moments, with the meaning of Mark.Tokens.
const (
	Queued     Moment = iota // prompt tokens
	Matched                  // admitted: tokens found in the cache
	FirstChunk               // tokens of the first chunk since admission
	FirstToken               // 1
	Preempted                // tokens whose KV was valid
	Ended                    // output tokens
)

var momentNames = enum.New[Moment]("scheduler", "moment", "queued", "matched", "first chunk", "first token", "preempted", "ended")

func (m Moment) String() string { return momentNames.Name(m) }

// Mark is one entry of a timeline. Its String is, for example, "12ms matched (96)".
type Mark struct {
	At     time.Duration // since Add
	What   Moment
	Tokens int
}

func (m Mark) String() string { return fmt.Sprintf("%v %v (%d)", m.At, m.What, m.Tokens) }
