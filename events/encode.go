package events

import (
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/events/eventlog"
	"github.com/coppice-llm/coppice/events/wire"
	"github.com/coppice-llm/coppice/kv"
)

// encoder turns batches of events into payloads. It collects hashes and tokens of one
// batch in slices that it reuses for the next, so a block costs no allocation.
type encoder struct {
	form   wire.Form
	batch  wire.Batch
	hashes []uint64
	tokens []uint32
	from   int          // index in hashes of the first hash of the last event
	fromT  int          // index in tokens of the first token of the last event
	lastNS kv.Namespace // namespace of the last event
	extras []byte
	keys   [1][]string
}

// newEncoder returns an encoder for one data-parallel rank.
func newEncoder(form wire.Form, dp uint32) *encoder {
	return &encoder{form: form, batch: wire.Batch{Rank: dp, HasRank: true}}
}

// message returns the payload of a batch.
func (o *encoder) message(b *eventlog.Batch) []byte {
	for i := range b.Events {
		o.add(&b.Events[i])
	}
	return o.payload(b.Time)
}

// payload encodes the collected events as a batch with time at, and clears them.
func (o *encoder) payload(at time.Time) []byte {
	b := &o.batch
	b.Time = float64(at.UnixMicro()) / 1e6
	payload := wire.AppendBatch(make([]byte, 0, 64+len(b.Events)*192+len(o.hashes)*9+len(o.tokens)*5), b, o.form)
	b.Events = b.Events[:0]
	o.hashes, o.tokens, o.extras = o.hashes[:0], o.tokens[:0], o.extras[:0]
	return payload
}

// add adds ev to the events of the batch. It panics on an event of another kind than those of a
// log.
func (o *encoder) add(ev *kv.Event) {
	switch ev.Kind {
	case kv.Stored:
		parent, hasParent := ev.Parent, ev.HasParent
		for i := range ev.Blocks {
			b := &ev.Blocks[i]
			o.store(ev, b, parent, hasParent, i == 0 && ev.NamesSalt())
			parent, hasParent = b.Hash, true
		}
	case kv.Removed:
		o.remove(ev.Tier, ev.Hashes)
	case kv.Cleared:
		if e := o.last(wire.AllBlocksCleared, kv.TierDevice); e == nil {
			o.begin(wire.Event{Kind: wire.AllBlocksCleared, Medium: mediaBytes[kv.TierDevice]})
		}
	default:
		panic(fmt.Sprintf("events: %v in a log", ev.Kind))
	}
}

// store adds block b of Stored event ev to the last wire event if b continues that event's run,
// else to a new wire event. parent is the hash of the block before b, if hasParent. salted says
// that b must name its salt. A block with extra keys (media, salt) is an event of its own, so
// that other blocks carry no extra keys.
func (o *encoder) store(ev *kv.Event, b *kv.Block, parent kv.BlockHash, hasParent, salted bool) {
	plain := len(b.Media) == 0 && !salted
	e := o.last(wire.BlockStored, ev.Tier)
	if e == nil || !plain || e.Extra != nil || !hasParent || uint64(parent) != e.Hashes[len(e.Hashes)-1] || o.lastNS != ev.Namespace {
		e = o.begin(wire.Event{Kind: wire.BlockStored, Medium: mediaBytes[ev.Tier], BlockTokens: len(b.Tokens),
			Parent: uint64(parent), HasParent: hasParent})
		if ev.Namespace.LoRA != "" {
			e.LoRA = []byte(ev.Namespace.LoRA)
		}
		if !plain {
			from := len(o.extras)
			o.extras = wire.AppendExtra(o.extras, o.extraKeys(ev, b, hasParent, salted))
			e.Extra = o.extras[from:len(o.extras):len(o.extras)]
		}
		o.lastNS = ev.Namespace
	}
	o.hashes = append(o.hashes, uint64(b.Hash))
	for _, t := range b.Tokens {
		o.tokens = append(o.tokens, uint32(t))
	}
	e.Hashes, e.Tokens = o.hashes[o.from:], o.tokens[o.fromT:]
}

// extraKeys returns the extra keys of block b in vLLM's order: the adapter's name, media, salt.
// If salted is true, the block must name its salt. At the start of a sequence the key is the
// salt itself. If the salt equals the adapter's name, the name is written before it, because a
// reader takes the first such key for the name. A private block after a public one, which vLLM
// does not have, names its salt after privateMark. A medium is 64 hexadecimal digits, of which
// Dynamo reads the first 16.
func (o *encoder) extraKeys(ev *kv.Event, b *kv.Block, hasParent, salted bool) [][]string {
	keys, ns := o.keys[0][:0], &ev.Namespace
	if salted && !hasParent && ns.Salt == ns.LoRA {
		keys = append(keys, ns.LoRA)
	}
	for _, m := range b.Media {
		keys = append(keys, fmt.Sprintf("%016x%048x", m, 0))
	}
	switch {
	case salted && hasParent:
		keys = append(keys, privateMark+ns.Salt)
	case salted:
		keys = append(keys, ns.Salt)
	}
	o.keys[0] = keys
	return o.keys[:]
}

// remove adds removed hashes to the last wire event if that is a removal in the same tier, else
// to a new one.
func (o *encoder) remove(tier kv.Tier, hashes []kv.BlockHash) {
	e := o.last(wire.BlockRemoved, tier)
	if e == nil {
		e = o.begin(wire.Event{Kind: wire.BlockRemoved, Medium: mediaBytes[tier]})
	}
	for _, h := range hashes {
		o.hashes = append(o.hashes, uint64(h))
	}
	e.Hashes = o.hashes[o.from:]
}

// last returns the last event if it has this kind and tier, else nil.
func (o *encoder) last(kind wire.Kind, tier kv.Tier) *wire.Event {
	if len(o.batch.Events) == 0 {
		return nil
	}
	e := &o.batch.Events[len(o.batch.Events)-1]
	if e.Kind != kind || string(e.Medium) != media[tier] {
		return nil
	}
	return e
}

// begin adds e to the batch. From now on, hashes and tokens appended to the encoder's slices
// belong to e.
func (o *encoder) begin(e wire.Event) *wire.Event {
	o.from, o.fromT = len(o.hashes), len(o.tokens)
	o.batch.Events = append(o.batch.Events, e)
	return &o.batch.Events[len(o.batch.Events)-1]
}
