package residency

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
	"github.com/coppice-llm/coppice/router/kvindex"
)

// held is the oracle of one rank, by the contract of events.Sink: its names for blocks, their
// contents and their tiers.
type held struct {
	blocks map[kv.BlockHash]block
	exact  bool // no event so far may cause an undercount
	seed   uint64
}

type block struct {
	content kv.BlockHash // chained hash
	in      tierSet
}

func newHeld() *held { return &held{blocks: map[kv.BlockHash]block{}, exact: true} }

// name returns a rank's name for a block; seed 0 uses the chained hash.
func name(hash kv.BlockHash, seed uint64) kv.BlockHash {
	if seed == 0 {
		return hash
	}
	return (hash ^ kv.BlockHash(seed)) * 0x9e3779b97f4a7c15
}

// contents returns the tiers of each block by its chained hash.
func (o *held) contents() map[kv.BlockHash]tierSet {
	all := map[kv.BlockHash]tierSet{}
	for _, b := range o.blocks {
		all[b.content] |= b.in
	}
	return all
}

func overlap(all map[kv.BlockHash]tierSet, hashes []kv.BlockHash) (o router.Overlap) {
	at := 0
	while := func(in tierSet) int {
		from := at
		for at < len(hashes) && all[hashes[at]]&in != 0 {
			at++
		}
		return at - from
	}
	o.Device = while(onDevice)
	o.Host = while(onDevice | onHost)
	o.Disk = while(onDevice | onHost | onDisk)
	o.Shared = while(onDevice | onHost | onDisk | onShared)
	o.Object = while(anyTier)
	return o
}

// store returns whether the parent is known.
func (o *held) store(s *events.Stored, contents []kv.BlockHash) bool {
	if s.HasParent && o.blocks[s.Parent].in == 0 {
		return false
	}
	for i, b := range s.Blocks {
		was := o.blocks[b.Hash]
		if was.in != 0 && was.content != contents[i] {
			o.exact = false
		}
		o.blocks[b.Hash] = block{contents[i], was.in | 1<<s.Tier}
	}
	return true
}

func (o *held) remove(tier kv.Tier, names []kv.BlockHash) {
	for _, n := range names {
		if b, ok := o.blocks[n]; ok {
			if b.in &^= 1 << tier; b.in == 0 {
				delete(o.blocks, n)
			} else {
				o.blocks[n] = b
			}
		}
	}
}

// sequences returns sequences with common prefixes of many lengths.
func sequences() (locals [][]kv.LocalHash, hashes [][]kv.BlockHash) {
	for i := range 10 {
		var stem []kv.LocalHash
		if i >= 3 {
			from := locals[i/2-1]
			stem = slices.Clone(from[:len(from)*(1+i%3)/4])
		}
		for j := range 9 {
			stem = append(stem, kv.LocalHash(1000*i+j+1)*0x2545f4914f6cdd1d)
		}
		locals = append(locals, stem)
		hashes = append(hashes, chain(stem))
	}
	return locals, hashes
}

func chain(locals []kv.LocalHash) []kv.BlockHash {
	hashes := make([]kv.BlockHash, len(locals))
	for i, local := range locals {
		if hashes[i] = kv.BlockHash(local); i > 0 {
			hashes[i] = kv.Chain(hashes[i-1], local)
		}
	}
	return hashes
}

// play drives a Residency and its oracle by a script of bytes.
type play struct {
	t      testing.TB
	x      *Residency
	script []byte
	ranks  int
	all    map[kv.Rank]*held
	locals [][]kv.LocalHash
	hashes [][]kv.BlockHash

	checks  int // number of checks of exact ranks
	foreign int // steps after which some rank had hashes of its own
	orphans int // stores whose parent was missing
	dumps   int // replaced ranks
}

func newPlay(t testing.TB, cfg Config, ranks int, script []byte) *play {
	t.Helper()
	x, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	p := &play{t: t, x: x, script: script, ranks: ranks, all: map[kv.Rank]*held{}}
	p.locals, p.hashes = sequences()
	return p
}

// n returns a number below a limit, from the next byte of the script.
func (p *play) n(below int) int {
	if len(p.script) == 0 {
		return 0
	}
	b := p.script[0]
	p.script = p.script[1:]
	return int(b) % below
}

func (p *play) tier(lower bool) kv.Tier {
	if !lower {
		return kv.TierDevice
	}
	return [...]kv.Tier{kv.TierDevice, kv.TierDevice, kv.TierShared, kv.TierHost, kv.TierDisk}[p.n(5)]
}

func (p *play) rank() (kv.Rank, *held) {
	i := p.n(p.ranks)
	r := kv.Rank{Worker: kv.WorkerID(1 + i/2), DP: uint32(i % 2)}
	if p.all[r] == nil {
		p.all[r] = newHeld()
	}
	o := p.all[r]
	if len(o.blocks) == 0 && p.x.Held(r) == 0 && p.x.rank(r) == nil {
		o.seed = uint64(i % 3) // two of three ranks have hashes of their own
	}
	return r, o
}

// stored returns a run of a sequence as a rank would announce it.
func (p *play) stored(q, from, to int, tier kv.Tier, seed uint64) events.Stored {
	s := events.Stored{Tier: tier}
	if from > 0 {
		s.Parent, s.HasParent = name(p.hashes[q][from-1], seed), true
	}
	for i := from; i < to; i++ {
		s.Blocks = append(s.Blocks, events.Block{Hash: name(p.hashes[q][i], seed), Local: p.locals[q][i]})
	}
	return s
}

// span returns a nonempty part of a sequence.
func (p *play) span() (q, from, to int) {
	q = p.n(len(p.locals))
	from = p.n(len(p.locals[q])) * p.n(2)
	return q, from, from + 1 + p.n(len(p.locals[q])-from)
}

func (p *play) step() {
	r, o := p.rank()
	lower := r.Worker%2 == 0 // ranks of odd workers never name a lower tier
	before := p.x.Stats()
	switch op := p.n(32); {
	case op == 0:
		p.x.Clear(r)
		*o = *newHeld()
		o.seed = uint64(p.n(3))
	case op == 1:
		p.x.Forget(r)
		delete(p.all, r)
	case op == 2:
		p.replace(r, o, lower)
	case op == 3:
		p.hostile(r, o)
	case op < 14:
		q, from, to := p.span()
		tier := p.tier(lower)
		var names []kv.BlockHash
		for _, h := range p.hashes[q][from:to] {
			names = append(names, name(h, o.seed))
		}
		if p.n(2) == 0 {
			slices.Reverse(names)
		}
		o.remove(tier, names)
		p.x.Remove(r, tier, names)
		if k := p.x.rank(r); k == nil || k.tiers == nil {
			o.exact = o.exact && p.closed(o)
		}
	default:
		q, from, to := p.span()
		p.store(r, o, p.stored(q, from, to, p.tier(lower), o.seed), slices.Clone(p.hashes[q][from:to]))
	}
	after := p.x.Stats()
	if p.foreign += p.x.kinds().foreign; refusals(after) != refusals(before) {
		o.exact = false
	}
}

// store stores in both. A refused store gives no name another meaning.
func (p *play) store(r kv.Rank, o *held, s events.Stored, contents []kv.BlockHash) {
	before := p.x.Stats()
	given := s
	given.Blocks = slices.Clone(s.Blocks)
	err := p.x.Store(r, given)
	clear(given.Blocks) // the caller reuses them
	if err == events.ErrUnknownParent {
		p.orphans++
	}
	after := p.x.Stats()
	taken := err == nil && after.BelowRefusedBlocks == before.BelowRefusedBlocks &&
		refusals(after)-after.TierFullBlocks == refusals(before)-before.TierFullBlocks
	if s.Tier >= kv.Tiers {
		if taken {
			p.t.Fatalf("%v: tier %v was taken", r, s.Tier)
		}
		return
	}
	if !taken {
		for i, b := range s.Blocks {
			if was := o.blocks[b.Hash]; was.in != 0 && was.content != contents[i] {
				o.exact = false
				contents[i] = was.content
			}
		}
	}
	ok := o.store(&s, contents)
	if err != nil && err != events.ErrUnknownParent || o.exact && ok != (err == nil) && refusals(after) == refusals(before) {
		p.t.Fatalf("%v: store of %d blocks: %v, parent known: %v", r, len(s.Blocks), err, ok)
	}
}

func refusals(s Stats) uint64 {
	return s.OverfullBlocks + s.TierFullBlocks + s.ForeignBlocks + s.CollisionBlocks + s.InvalidBlocks
}

// closed reports whether each block of a rank has its parent on the device too.
func (p *play) closed(o *held) bool {
	all := o.contents()
	for _, hashes := range p.hashes {
		for i := 1; i < len(hashes); i++ {
			if all[hashes[i]]&onDevice != 0 && all[hashes[i-1]]&onDevice == 0 {
				return false
			}
		}
	}
	return true
}

func (p *play) replace(r kv.Rank, o *held, lower bool) {
	*o = *newHeld()
	o.seed = uint64(p.n(3))
	var dump []events.Stored
	want := 0
	for range p.n(6) {
		q, from, to := p.span()
		s := p.stored(q, from, to, p.tier(lower), o.seed)
		dump = append(dump, s)
		if !o.store(&s, p.hashes[q][from:to]) {
			want += len(s.Blocks)
		}
	}
	p.dumps++
	before := refusals(p.x.Stats())
	if got := p.x.Replace(r, dump); got != want && refusals(p.x.Stats()) == before {
		p.t.Fatalf("%v: %d blocks of a dump refused, want %d", r, got, want)
	}
}

// hostile sends events that no honest worker sends.
func (p *play) hostile(r kv.Rank, o *held) {
	q, from, to := p.span()
	s := p.stored(q, from, to, p.tier(true), o.seed)
	at := p.n(len(s.Blocks))
	contents := slices.Clone(p.hashes[q][from:to])
	switch p.n(7) {
	case 0: // another name for a block, or the first one of a rank that has none yet
		s.Blocks[at].Hash ^= 1 << p.n(64)
	case 1: // the name of another block
		other := p.hashes[p.n(len(p.hashes))]
		s.Blocks[at].Hash = name(other[p.n(len(other))], o.seed)
	case 2:
		s.Tier = kv.Tier(kv.Tiers + p.n(250))
	case 3: // a block that is its own parent
		s.Parent, s.HasParent = s.Blocks[at].Hash, true
	case 4: // another prefix, so all later blocks are different
		s.Blocks[0].Local++
		for i, b := range s.Blocks {
			switch {
			case i > 0:
				contents[i] = kv.Chain(contents[i-1], b.Local)
			case s.HasParent:
				contents[i] = kv.Chain(p.hashes[q][from-1], b.Local)
			default:
				contents[i] = kv.BlockHash(b.Local)
			}
		}
	case 5: // in a dump
		p.x.Replace(r, []events.Stored{s, p.stored(0, 0, 3, s.Tier, o.seed+1), {Tier: 77}, s})
		p.x.Clear(r)
		o.blocks = map[kv.BlockHash]block{}
		return
	case 6: // unknown hashes, in tiers that do not exist
		p.x.Remove(r, kv.Tier(p.n(256)), []kv.BlockHash{0, 1, kv.BlockHash(p.n(256))})
		return
	}
	o.exact = false
	p.store(r, o, s, contents)
}

// check looks up all sequences.
func (p *play) check() {
	if err := p.x.Check(); err != nil {
		p.t.Fatal(err)
	}
	for q := range p.locals {
		got := found(p.t, p.x.Find(chain(p.locals[q]), nil))
		for r, o := range p.all {
			want := overlap(o.contents(), p.hashes[q])
			g := got[r]
			if g.Worker = (kv.Rank{}); o.exact && g != want || more(g, want) {
				p.t.Fatalf("%v, sequence %d: %+v, want %+v, exactly: %v\n%v", r, q, g, want, o.exact, p.x.Stats())
			}
			delete(got, r)
			if o.exact && want.Blocks() > 0 {
				p.checks++
			}
		}
		if len(got) > 0 {
			p.t.Fatalf("sequence %d: %v of ranks that are not there", q, got)
		}
	}
	for r, o := range p.all {
		n := p.x.Held(r)
		if want := len(o.contents()); n > want || o.exact && n != want {
			p.t.Fatalf("%v: %d held, want %d, exactly: %v", r, n, want, o.exact)
		}
	}
}

// more reports whether a claims more than b.
func more(a, b router.Overlap) bool {
	return a.Device > b.Device || a.Device+a.Host > b.Device+b.Host || a.Device+a.Host+a.Disk > b.Device+b.Host+b.Disk || a.Blocks()-a.Object > b.Blocks()-b.Object || a.Blocks() > b.Blocks()
}

func found(t testing.TB, overlaps []router.Overlap) map[kv.Rank]router.Overlap {
	t.Helper()
	m := map[kv.Rank]router.Overlap{}
	for _, o := range overlaps {
		if _, twice := m[o.Worker]; twice || o.Blocks() == 0 || o.Device < 0 || o.Host < 0 || o.Disk < 0 || o.Shared < 0 || o.Object < 0 {
			t.Fatalf("overlap %+v twice or empty in %v", o, overlaps)
		}
		m[o.Worker] = o
	}
	return m
}

func bytesOf(seed uint64, n int) []byte {
	rng := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

var configs = []Config{
	{Index: kvindex.ShardedConfig{Shards: 3}},
	{Index: kvindex.ShardedConfig{Shards: 1}},
	{Index: kvindex.ShardedConfig{Shards: 2, Config: kvindex.Config{HolderBlocks: 25, Holders: 5}}, TierBlocks: 12},
	{Index: kvindex.ShardedConfig{Shards: 1, Config: kvindex.Config{HolderBlocks: 40, Blocks: 50}}, TierBlocks: 5},
}

// TestAgainstOracle plays random streams in which one event in 32 is hostile.
func TestAgainstOracle(t *testing.T) {
	for seed := range uint64(16) {
		p := newPlay(t, configs[seed%4], 6, bytesOf(seed, 6000))
		for len(p.script) > 0 {
			p.step()
			p.check()
		}
		if k := p.x.kinds(); k.tiered == 0 || p.foreign == 0 || p.orphans == 0 || p.dumps == 0 {
			t.Errorf("seed %d: some of it did not happen: %+v, %d foreign, %d orphans, %d dumps", seed, k, p.foreign, p.orphans, p.dumps)
		}
		if seed%4 < 2 && p.checks < 2000 {
			t.Errorf("seed %d: only %d exact overlaps were compared", seed, p.checks)
		}
	}
}

func FuzzResidency(f *testing.F) {
	for seed := range uint64(4) {
		f.Add(uint8(seed), bytesOf(seed, 300))
	}
	f.Fuzz(func(t *testing.T, cfg uint8, script []byte) {
		p := newPlay(t, configs[cfg%4], 4, script[:min(len(script), 1000)])
		for len(p.script) > 0 {
			p.step()
			p.check()
		}
	})
}
