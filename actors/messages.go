package actors

import (
	"sync/atomic"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/grammar"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/carrier"
	"github.com/coppice-llm/coppice/scheduler"
)

// Messages are immutable once sent: the receiver owns the memory that they refer to.

// encode asks the turns actor, and then a tokenizer worker, to encode the prompt of req and
// submit the request. If stream is nil, the message comes from a Tokenize call: the worker
// encodes text instead and sends the tokens to reply.
type encode struct {
	tenant string
	stream *Stream
	req    Request
	text   Text
	reply  chan<- encodedText // capacity 1, so that the worker never blocks
	worker int                // set by the turns actor
	gone   atomic.Bool        // the caller of Tokenize has returned
}

// encodedText is the reply to a Tokenize call.
type encodedText struct {
	tokens []kv.Token
	err    error
}

// encoded tells the turns actor that a worker has finished a text of a tenant.
type encoded struct {
	worker int
	tenant string
}

// needFormat hands the formats actor a request whose format must be compiled first.
type needFormat struct {
	submit *submit
	format grammar.Format
}

// compile asks a compiler to compile a format.
type compile struct {
	worker   int
	tenant   string
	format   grammar.Format
	unwanted atomic.Bool // set by the formats actor when the last request stops waiting for the format
}

// compiled returns a compiler's grammar, or its error, to the formats actor.
type compiled struct {
	compile *compile
	grammar *grammar.Grammar
	err     error
}

// submit hands the scheduler a request with its tokens.
type submit struct {
	stream *Stream
	req    scheduler.Request
}

// abort tells the scheduler, or the formats actor, that the caller aborted a request.
type abort struct {
	id  scheduler.RequestID
	err error
}

// step asks the engine to run a plan.
type step struct{ plan *scheduler.Plan }

// stepDone tells the scheduler that a plan has run, or that the device is lost.
type stepDone struct {
	plan   *scheduler.Plan
	result *engine.Result
	err    error
}

// seek asks the engine to look up a request's prompt in a shared tier, then to pass the request
// on.
type seek struct {
	submit  *submit
	format  grammar.Format
	extents []mempool.Extent
}

// found tells the scheduler which extents a tier has, parents first.
type found struct {
	tier    kv.Tier
	extents []mempool.Extent
}

// carried tells the engine, from its watcher goroutine, that the carrier has results.
type carried struct{}

// hasten, to the engine: no move may take longer than until.
type hasten struct{ until time.Time }

// moved tells the scheduler which moves have ended, and how.
type moved struct{ ended []carrier.Ended }

// flush asks the scheduler to write the cache to the tiers that survive the process, up to the
// time until, and then to close done.
type flush struct {
	until  time.Duration
	done   chan struct{}
	begun  time.Duration
	before [kv.Tiers]scheduler.TierMetrics // when the flush began
}

// want asks the pool for up to n pages; granted is the answer.
type want struct{ n int }

// granted hands the scheduler pages, with the number of pages still free in the pool.
type granted struct {
	pages    []kv.PageID
	poolFree int
}

// poolNews passes a pool's notices on to the scheduler, if other schedulers lease from the
// pool, too. recall is a number of pages to give back. offer is a number of free pages; the
// scheduler answers it with want or decline.
type poolNews struct{ recall, offer int }

// decline tells the pool that the scheduler does not need the pages on offer.
type decline struct{}

// give returns pages to the pool. asked says that the sender's last want is unanswered and
// that the sender will never read the answer; the pages granted by that answer come back,
// too.
type give struct {
	pages []kv.PageID
	asked bool
}

// deliver hands the deliverer the outputs of one step, in order.
type deliver struct{ items []delivery }

type delivery struct {
	stream *Stream
	out    scheduler.Output
}

// tick tells the scheduler, from its alarm, that a time limit may have passed.
type tick struct{}

// look asks the scheduler actor to call the function at, which must not block. The function
// itself sends its result to the goroutine that waits for it.
type look struct{ at func(*schedulerActor) }

// shutdown asks any actor to release what it holds and stop, after the messages sent before.
type shutdown struct{}
