package actors

import (
	"sync/atomic"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/grammar"
	"github.com/coppice-llm/coppice/internal/mempool/carrier"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/scheduler"
)

// Messages are immutable once sent: the receiver owns what they point to.

// To the turns actor, and from it to a tokenizer worker: encode the prompt of a request,
// then submit it. Without a stream it is the text of a Tokenize, whose tokens go to reply.
type encode struct {
	tenant string
	stream *Stream
	req    Request
	text   Text
	reply  chan<- encodedText // room for one
	worker int                // set by the turns actor
	gone   atomic.Bool        // nobody waits for the reply any more
}

// encodedText answers a Tokenize.
type encodedText struct {
	tokens []kv.Token
	err    error
}

// To the turns actor: this worker is done with a text of that tenant.
type encoded struct {
	worker int
	tenant string
}

// To the formats actor: a request whose format is to be compiled.
type needFormat struct {
	submit *submit
	format Format
}

// To a compiler: make this.
type compile struct {
	worker   int
	tenant   string
	format   Format
	unwanted atomic.Bool // set by the formats actor when nobody waits for it any more
}

// To the formats actor: what a compiler made, or why it could not.
type compiled struct {
	compile *compile
	grammar *grammar.Grammar
	err     error
}

// To the scheduler: a request with its tokens.
type submit struct {
	stream *Stream
	req    scheduler.Request
}

// To the scheduler: the caller gave up.
type abort struct {
	id  scheduler.RequestID
	err error
}

// To the engine: run this plan.
type step struct{ plan *scheduler.Plan }

// To the scheduler: the plan ran, or the device is lost.
type stepDone struct {
	plan   *scheduler.Plan
	result *engine.Result
	err    error
}

// To the engine: see what a shared tier has of a request's prompt, then pass the request on.
type seek struct {
	submit  *submit
	format  Format
	extents []mempool.Extent
}

// To the scheduler: a tier has these, parents first.
type found struct {
	tier    kv.Tier
	extents []mempool.Extent
}

// To the engine, from its own watcher: the carrier has news.
type carried struct{}

// To the scheduler: what has become of moves.
type moved struct{ ended []carrier.Ended }

// To the scheduler: write the cache to the tiers that outlive the process until then, and
// close done.
type flush struct {
	until  time.Duration
	done   chan struct{}
	begun  time.Duration
	before [kv.Tiers]scheduler.TierMetrics // at that time
}

// To the pool: as many pages as there are, up to n; answered by granted.
type want struct{ n int }

// To the scheduler: pages, and how many the pool has left.
type granted struct {
	pages    []kv.PageID
	poolFree int
}

// To the scheduler, where others lease from the pool too: pages to give back, and free
// ones, which are to be answered by want or decline.
type poolNews struct{ recall, offer int }

// To the pool: what was offered is not wanted now.
type decline struct{}

// To the pool: pages come back. asked: the answer to the last want was not seen
// and will not be; its pages come back too.
type give struct {
	pages []kv.PageID
	asked bool
}

// To the deliverer: one step's news, in order.
type deliver struct{ items []delivery }

type delivery struct {
	stream *Stream
	out    scheduler.Output
}

// To the scheduler, from its own alarm: a time limit may have passed.
type tick struct{}

// To the scheduler: have a look, and answer without waiting.
type look struct{ at func(*schedulerActor) }

// To any actor, after all that it has to do: put things away and stop.
type shutdown struct{}

// What is sent to an actor that has stopped is lost on purpose; without these
// methods protoactor would start a goroutine to log it.
func (*poolNews) IgnoreDeadLetterLogging()   {}
func (*decline) IgnoreDeadLetterLogging()    {}
func (*encode) IgnoreDeadLetterLogging()     {}
func (*encoded) IgnoreDeadLetterLogging()    {}
func (*needFormat) IgnoreDeadLetterLogging() {}
func (*compile) IgnoreDeadLetterLogging()    {}
func (*compiled) IgnoreDeadLetterLogging()   {}
func (*submit) IgnoreDeadLetterLogging()     {}
func (*abort) IgnoreDeadLetterLogging()      {}
func (*step) IgnoreDeadLetterLogging()       {}
func (*stepDone) IgnoreDeadLetterLogging()   {}
func (*seek) IgnoreDeadLetterLogging()       {}
func (*found) IgnoreDeadLetterLogging()      {}
func (*carried) IgnoreDeadLetterLogging()    {}
func (*moved) IgnoreDeadLetterLogging()      {}
func (*flush) IgnoreDeadLetterLogging()      {}
func (*want) IgnoreDeadLetterLogging()       {}
func (*granted) IgnoreDeadLetterLogging()    {}
func (*give) IgnoreDeadLetterLogging()       {}
func (*deliver) IgnoreDeadLetterLogging()    {}
func (*tick) IgnoreDeadLetterLogging()       {}
func (*look) IgnoreDeadLetterLogging()       {}
func (*shutdown) IgnoreDeadLetterLogging()   {}
