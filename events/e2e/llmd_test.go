package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/llm-d/llm-d-kv-cache/pkg/kvcache/kvblock"
	"github.com/llm-d/llm-d-kv-cache/pkg/kvevents"
	"github.com/llm-d/llm-d-kv-cache/pkg/kvevents/engineadapter"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/events/eventstest"
	"github.com/coppice-llm/coppice/events/wire"
	"github.com/coppice-llm/coppice/events/zmq"
	"github.com/coppice-llm/coppice/kv"
)

const (
	size  = eventstest.BlockTokens
	pod   = "10.0.0.1:8000"
	model = "model"
)

// prompt is a sequence that a cache holds, or held.
type prompt struct {
	ns     kv.Namespace
	tokens []kv.Token
	hashes []kv.BlockHash
	locals []kv.LocalHash
}

func (p *prompt) grow(rng *rand.Rand, blocks int) {
	for range blocks * size {
		p.tokens = append(p.tokens, kv.Token(rng.IntN(150_000)))
	}
	hasher := kv.NewHasher(p.ns, size)
	p.hashes, p.locals = nil, nil
	for i := 0; i < len(p.tokens); i += size {
		hash, local := hasher.Next(p.tokens[i : i+size])
		p.hashes, p.locals = append(p.hashes, hash), append(p.locals, local)
	}
}

// stored is the event that announces blocks [from, to) of a prompt.
func (p *prompt) stored(from, to int) kv.Event {
	ev := kv.Event{Kind: kv.Stored, Namespace: p.ns}
	if from > 0 {
		ev.Parent, ev.HasParent = p.hashes[from-1], true
	}
	for i := from; i < to; i++ {
		ev.Blocks = append(ev.Blocks, kv.Block{Hash: p.hashes[i], Local: p.locals[i], Tokens: p.tokens[i*size : (i+1)*size]})
	}
	return ev
}

// cache is a set of blocks as a radix tree would hold them.
type cache struct {
	held map[kv.BlockHash]bool
	kids map[kv.BlockHash]int
}

func (c *cache) store(p *prompt) (evs []kv.Event) {
	have := 0
	for have < len(p.hashes) && c.held[p.hashes[have]] {
		have++
	}
	if have == len(p.hashes) {
		return nil
	}
	for i, h := range p.hashes[have:] {
		c.held[h] = true
		if at := have + i; at > 0 {
			c.kids[p.hashes[at-1]]++
		}
	}
	return []kv.Event{p.stored(have, len(p.hashes))}
}

// evict removes up to n blocks from the end of a prompt, and stops at a block that has
// children.
func (c *cache) evict(p *prompt, n int) []kv.Event {
	ev := kv.Event{Kind: kv.Removed}
	for i := len(p.hashes) - 1; i >= 0 && len(ev.Hashes) < n; i-- {
		h := p.hashes[i]
		if !c.held[h] {
			continue
		}
		if c.kids[h] > 0 {
			break
		}
		delete(c.held, h)
		if i > 0 {
			c.kids[p.hashes[i-1]]--
		}
		ev.Hashes = append(ev.Hashes, h)
	}
	if len(ev.Hashes) == 0 {
		return nil
	}
	return []kv.Event{ev}
}

func (c *cache) prefix(p *prompt) (n int) {
	for n < len(p.hashes) && c.held[p.hashes[n]] {
		n++
	}
	return n
}

// theirs is llm-d's index, fed by its own subscriber.
type theirs struct {
	index kvblock.Index
	keys  kvblock.TokenProcessor
}

func startTheirs(t *testing.T, endpoint string) theirs {
	ctx, cancel := context.WithCancel(context.Background())
	index, err := kvblock.NewIndex(ctx, kvblock.DefaultIndexConfig())
	if err != nil {
		t.Fatal(err)
	}
	keys, err := kvblock.NewChunkedTokenDatabase(&kvblock.TokenProcessorConfig{BlockSizeTokens: size})
	if err != nil {
		t.Fatal(err)
	}
	pool := kvevents.NewPool(kvevents.DefaultConfig(), index, keys, engineadapter.NewVLLMAdapter())
	pool.Start(ctx)
	manager := kvevents.NewSubscriberManager(pool)
	if err := manager.EnsureSubscriber(ctx, pod, endpoint, "kv@", true); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		manager.Shutdown(context.Background())
		pool.Shutdown(context.Background())
	})
	return theirs{index, keys}
}

// prefix returns the number of leading blocks of a prompt that the pod holds by llm-d's
// index.
func (l theirs) prefix(t *testing.T, p *prompt, as kv.Namespace) (n int) {
	tokens := make([]uint32, len(p.tokens))
	for i, token := range p.tokens {
		tokens[i] = uint32(token)
	}
	name := model
	if as.LoRA != "" {
		name = as.LoRA
	}
	var features []*kvblock.BlockExtraFeatures
	if as.Salt != "" {
		raw := make([][]any, len(p.hashes))
		raw[0] = []any{as.Salt}
		var err error
		if features, err = kvblock.ParseRawExtraKeys(raw); err != nil {
			t.Fatal(err)
		}
	}
	keys, err := l.keys.TokensToKVBlockKeys(kvblock.EmptyBlockHash, tokens, name, features)
	if err != nil {
		t.Fatal(err)
	}
	found, err := l.index.Lookup(context.Background(), keys, sets.New(pod))
	if err != nil {
		t.Fatal(err)
	}
	for n < len(keys) && len(found[keys[n]]) > 0 {
		n++
	}
	return n
}

// The cache changes for a while. At every pause both indexes must agree with it, and so
// with each other, on the prefix of every prompt.
func TestAgainstLLMD(t *testing.T) {
	for _, form := range []wire.Form{{}, {Arrays: true}} {
		t.Run(fmt.Sprintf("arrays=%v", form.Arrays), func(t *testing.T) {
			sender := zmq.NewSender(zmq.SenderConfig{Endpoint: "tcp://127.0.0.1:0", Bind: true,
				ReplayEndpoint: "tcp://127.0.0.1:0", Topic: "kv@" + pod + "@" + model})
			pub, err := eventstest.NewPublisher(events.PublisherConfig{Form: form}, sender)
			if err != nil {
				t.Fatal(err)
			}
			defer pub.Close()
			endpoint := "tcp://" + sender.Addr().String()
			their := startTheirs(t, endpoint)
			our := eventstest.NewSet()
			sub, err := events.NewSubscriber(events.SubscriberConfig{BlockTokens: size}, our)
			if err != nil {
				t.Fatal(err)
			}
			defer sub.Close()
			if err := sub.Add(kv.Rank{}, zmq.NewSource(zmq.SourceConfig{Endpoint: endpoint,
				ReplayEndpoint: "tcp://" + sender.ReplayAddr().String()}), events.Follow{}); err != nil {
				t.Fatal(err)
			}
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			rng := rand.New(rand.NewPCG(1, 2))
			c := cache{make(map[kv.BlockHash]bool), make(map[kv.BlockHash]int)}
			// llm-d asks for no replay, so it is told of one prompt until it has heard of it.
			first := &prompt{}
			first.grow(rng, 1)
			for stored := c.store(first); their.prefix(t, first, first.ns) != c.prefix(first); <-tick.C {
				pub.Publish(stored)
			}
			spaces := []kv.Namespace{{}, {}, {LoRA: "sql"}, {Salt: "tenant"}}
			var prompts []*prompt
			hits := 0
			for round := range 30 {
				for range 10 {
					p := &prompt{ns: spaces[rng.IntN(len(spaces))]}
					if len(prompts) > 0 && rng.IntN(3) > 0 { // goes on from another one
						of := prompts[rng.IntN(len(prompts))]
						p.ns = of.ns
						p.tokens = slices.Clone(of.tokens[:size*rng.IntN(len(of.hashes)+1)])
					}
					p.grow(rng, 1+rng.IntN(6))
					prompts = append(prompts, p)
					pub.Publish(c.store(p))
					pub.Publish(c.evict(prompts[rng.IntN(len(prompts))], rng.IntN(5)))
				}
				if round == 20 {
					clear(c.held)
					clear(c.kids)
					pub.Publish([]kv.Event{{Kind: kv.Cleared}})
				}
				our.Until(c.held)
				// llm-d does not report when it is done, so poll until all prefixes agree.
				for _, p := range prompts {
					for their.prefix(t, p, p.ns) != c.prefix(p) {
						<-tick.C
					}
				}
				for _, p := range prompts {
					got, want := their.prefix(t, p, p.ns), c.prefix(p)
					if got != want {
						t.Fatalf("round %d: they match %d blocks, we %d", round, got, want)
					}
					hits += got
					if p.ns.Salt != "" && their.prefix(t, p, kv.Namespace{}) > 0 {
						t.Fatalf("round %d: another tenant finds it", round)
					}
				}
			}
			if m := pub.Metrics(); hits == 0 || m.Lost > 0 {
				t.Errorf("%d blocks matched, %v", hits, m)
			}
			t.Logf("%d prompts, %d blocks matched, alike: %v", len(prompts), hits, pub.Metrics())
		})
	}
}
