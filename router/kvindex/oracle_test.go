package kvindex

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// naive is the oracle: a set of prefixes per holder, written out. An index must agree with it if
// every remove also removes the blocks after it.
type naive map[kv.Rank]map[string]bool

func nameOf(locals []kv.LocalHash) string { return fmt.Sprint(locals) }

func (o naive) store(h kv.Rank, locals []kv.LocalHash, from int) bool {
	if from > 0 && !o[h][nameOf(locals[:from])] {
		return false
	}
	if o[h] == nil {
		o[h] = map[string]bool{}
	}
	for i := from; i < len(locals); i++ {
		o[h][nameOf(locals[:i+1])] = true
	}
	return true
}

func (o naive) remove(h kv.Rank, locals []kv.LocalHash) bool {
	name := nameOf(locals)
	if !o[h][name] {
		return false
	}
	stem := name[:len(name)-1] + " "
	for other := range o[h] {
		if other == name || len(other) > len(stem) && other[:len(stem)] == stem {
			delete(o[h], other)
		}
	}
	return true
}

func (o naive) find(locals []kv.LocalHash) map[kv.Rank]uint32 {
	found := map[kv.Rank]uint32{}
	for h, set := range o {
		for i := range locals {
			if !set[nameOf(locals[:i+1])] {
				break
			}
			found[h] = uint32(i + 1)
		}
	}
	return found
}

// chain returns the hashes of a sequence.
func chain(locals []kv.LocalHash) []kv.BlockHash {
	hashes := make([]kv.BlockHash, len(locals))
	for i, local := range locals {
		if hashes[i] = kv.BlockHash(local); i > 0 {
			hashes[i] = kv.Chain(hashes[i-1], local)
		}
	}
	return hashes
}

// tail returns the blocks of a sequence from index from on, as a Run.
func tail(locals []kv.LocalHash, from int) Run {
	hashes := chain(locals)
	r := Run{Hashes: hashes[from:], Locals: locals[from:]}
	if from > 0 {
		r.Parent, r.HasParent = hashes[from-1], true
	}
	return r
}

func found(t testing.TB, overlaps []Overlap) map[kv.Rank]uint32 {
	t.Helper()
	m := map[kv.Rank]uint32{}
	for _, o := range overlaps {
		if _, twice := m[o.Holder]; twice || o.Blocks == 0 {
			t.Fatalf("overlap %+v twice or empty in %v", o, overlaps)
		}
		m[o.Holder] = o.Blocks
	}
	return m
}

func equal(a, b map[kv.Rank]uint32) bool {
	if len(a) != len(b) {
		return false
	}
	for h, n := range a {
		if b[h] != n {
			return false
		}
	}
	return true
}

// play is a random walk over all operations on a small alphabet, so that runs are split and
// joined often.
type play struct {
	t       testing.TB
	rng     *rand.Rand
	x       *Index
	oracle  naive
	holders []kv.Rank
	seqs    [][]kv.LocalHash
	longest int
}

func newPlay(t testing.TB, seed uint64, holders, longest int) *play {
	x, err := New(Config{Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	p := &play{t: t, rng: rand.New(rand.NewPCG(seed, 1)), x: x, oracle: naive{}, longest: longest}
	for i := range holders {
		p.holders = append(p.holders, kv.Rank{Worker: kv.WorkerID(i / 2), DP: uint32(i % 2)})
	}
	return p
}

// sequence returns a new sequence that shares a prefix with an earlier one.
func (p *play) sequence() []kv.LocalHash {
	var seq []kv.LocalHash
	if len(p.seqs) > 0 && p.rng.IntN(8) > 0 {
		from := p.seqs[p.rng.IntN(len(p.seqs))]
		seq = slices.Clone(from[:p.rng.IntN(len(from)+1)])
	}
	for more := p.rng.IntN(p.longest); more > 0 || len(seq) == 0; more-- {
		seq = append(seq, kv.LocalHash(1+p.rng.IntN(3)))
	}
	if len(p.seqs) < 40 {
		p.seqs = append(p.seqs, seq)
	} else {
		p.seqs[p.rng.IntN(40)] = seq
	}
	return seq
}

func (p *play) step() string {
	h := p.holders[p.rng.IntN(len(p.holders))]
	seq := p.sequence()
	if p.rng.IntN(3) > 0 {
		seq = p.seqs[p.rng.IntN(len(p.seqs))]
	}
	at := p.rng.IntN(len(seq))
	switch op := p.rng.IntN(20); {
	case op < 9:
		if p.rng.IntN(2) == 0 {
			at = 0
		}
		run := tail(slices.Clone(seq), at)
		_, err := p.x.Store(h, run)
		clear(run.Hashes) // the caller reuses them
		clear(run.Locals)
		if ok := p.oracle.store(h, seq, at); ok != (err == nil) {
			p.t.Fatalf("store %v %v from %d: %v, oracle %v", h, seq, at, err, ok)
		}
		return fmt.Sprintf("store %v %v from %d", h, seq, at)
	case op < 17:
		hashes := chain(seq)
		hi := min(len(seq), at+1+p.rng.IntN(4))
		var list []kv.BlockHash
		known := 0
		for _, i := range p.rng.Perm(hi - at) {
			list = append(list, hashes[at+i])
			if p.oracle.remove(h, seq[:at+i+1]) {
				known++
			}
		}
		if got := p.x.Remove(h, list); got != known {
			p.t.Fatalf("remove %v %v [%d, %d): %d known, oracle %d", h, seq, at, hi, got, known)
		}
		return fmt.Sprintf("remove %v %v [%d, %d)", h, seq, at, hi)
	case op == 17:
		p.x.Clear(h)
		delete(p.oracle, h)
		return fmt.Sprint("clear ", h)
	case op == 18 && p.rng.IntN(4) == 0:
		p.x.removeWorker(h.Worker)
		for _, g := range p.holders {
			if g.Worker == h.Worker {
				delete(p.oracle, g)
			}
		}
		return fmt.Sprint("remove worker ", h.Worker)
	}
	return "nothing"
}

// agree compares all queries.
func (p *play) agree(after string) {
	p.t.Helper()
	if err := p.x.Check(); err != nil {
		p.t.Fatalf("after %s: %v", after, err)
	}
	for range 3 {
		seq := p.seqs[p.rng.IntN(len(p.seqs))]
		if p.rng.IntN(3) == 0 {
			seq = append(slices.Clone(seq), 2, 1)
		}
		want := p.oracle.find(seq)
		if got := found(p.t, p.x.Find(chain(seq), nil)); !equal(got, want) {
			p.t.Fatalf("after %s: find %v: %v, oracle %v", after, seq, got, want)
		}
	}
	for _, h := range p.holders {
		if got := p.x.Held(h); got != len(p.oracle[h]) {
			p.t.Fatalf("after %s: %v has %d blocks, oracle %d", after, h, got, len(p.oracle[h]))
		}
	}
}

func TestAgainstOracle(t *testing.T) {
	for seed := range uint64(30) {
		p := newPlay(t, seed, 2+int(seed%5), 4+int(seed%13))
		p.x.runBlocks = []int{maxRun, 1, 2, 3, 5, 8}[seed%6]
		p.x.manyKids = []uint32{2, 3, manyKids, 1}[seed%4]
		for range 600 {
			p.agree(p.step())
		}
		if err := p.rebuilt(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestManyHolders has more holders than fit in a word, so that all words are used.
func TestManyHolders(t *testing.T) {
	p := newPlay(t, 3, 200, 12)
	p.x.manyKids = 2
	for range 500 {
		p.agree(p.step())
	}
	if err := p.rebuilt(); err != nil {
		t.Fatal(err)
	}
}

// rebuilt restores a dump into an empty index, which must be the same.
func (p *play) rebuilt() error {
	y, err := New(Config{})
	if err != nil {
		return err
	}
	y.runBlocks = p.x.runBlocks
	for _, h := range p.x.Holders() {
		for _, r := range p.x.DumpHolder(h, nil) {
			if _, err := y.Store(h, r); err != nil {
				return fmt.Errorf("restoring %v: %w", r, err)
			}
		}
	}
	if err := y.Check(); err != nil {
		return err
	}
	a, b := p.x.Stats(), y.Stats()
	if p.x.runBlocks == maxRun && a.Nodes != b.Nodes || a.Blocks != b.Blocks || a.HolderBlocks != b.HolderBlocks {
		return fmt.Errorf("restored %+v of %+v", b, a)
	}
	for _, seq := range p.seqs {
		if x, y := found(p.t, p.x.Find(chain(seq), nil)), found(p.t, y.Find(chain(seq), nil)); !equal(x, y) {
			return fmt.Errorf("restored, %v is %v, was %v", seq, y, x)
		}
	}
	return nil
}

func FuzzIndex(f *testing.F) {
	f.Add(uint64(1), uint8(3), uint8(9), uint8(0))
	f.Add(uint64(77), uint8(70), uint8(2), uint8(3))
	f.Fuzz(func(t *testing.T, seed uint64, holders, longest, runBlocks uint8) {
		p := newPlay(t, seed, 1+int(holders), 1+int(longest%64))
		if runBlocks > 0 {
			p.x.runBlocks = int(runBlocks)
		}
		if seed%2 == 0 {
			p.x.manyKids = 2
		}
		for range 200 {
			p.agree(p.step())
		}
	})
}
