package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// world is a small scheduler that decides at random. All its batches are legal: it shares pages of
// running and finished requests, copies partial pages, cuts prompts anywhere, keeps two batches in
// flight, frees pages that running batches still use, and preempts. The sanitizer must never
// report an error, and every request must get the output of Expect.
type world struct {
	*bed
	r        *rand.Rand
	info     engine.Info
	refs     []int // by page
	free     []kv.PageID
	slots    []engine.Slot
	live     []*job
	stems    []stem // what is kept of finished and running requests
	inflight []flight
	done     int
	faulty   bool           // rows fail, and nothing is shared: a row that shares pages with a failed one fails too
	failing  map[uint64]int // the row that fails, by batch
	failed   int
}

// job is a request. Its first ran tokens and first asked samples are submitted.
type job struct {
	slot   engine.Slot
	params engine.SamplingParams
	prompt []kv.Token
	n      int
	out    []kv.Token // known
	asked  int
	ran    int
	target int // how many tokens of prompt and output run before the next sample
	pages  []kv.PageID
	bind   bool
	over   bool // failed; its rows in flight do not matter
}

// stem is a prefix whose KV is on pages, or will be once the submitted batches have run.
type stem struct {
	tokens []kv.Token
	pages  []kv.PageID
	of     *job // set while its request runs: then only whole pages before of.ran are shared
}

type flight struct {
	batch  *engine.Batch
	ticket engine.Ticket
	jobs   []*job
}

func newWorld(t testing.TB, seed uint64, cfg Config) *world {
	r := rand.New(rand.NewPCG(seed, 1))
	cfg.PageTokens, cfg.Pages = 1<<r.IntN(5), 0
	cfg.Pages = 600 / cfg.PageTokens
	cfg.MaxSlots, cfg.MaxRows, cfg.Vocab, cfg.Seed = 6, 8, 128, seed
	w := &world{r: r, failing: map[uint64]int{}}
	if seed%3 == 0 {
		w.faulty = true
		cfg.Faults.Row = func(seq uint64, row int) error {
			if i, ok := w.failing[seq]; ok && i == row {
				return errors.New("a planted fault")
			}
			return nil
		}
	}
	w.bed = newBed(t, cfg)
	w.info = w.b.Info()
	w.refs = make([]int, w.info.NumPages)
	for p := range w.info.NumPages {
		w.free = append(w.free, kv.PageID(p))
	}
	for s := range w.info.MaxSlots {
		w.slots = append(w.slots, engine.Slot(s))
	}
	return w
}

func (w *world) drop(pages []kv.PageID) {
	for _, p := range pages {
		if w.refs[p]--; w.refs[p] == 0 {
			w.free = append(w.free, p)
		}
	}
}

// grow gives the job pages for n tokens. It evicts stems for that, and returns false if there
// still are too few free pages.
func (w *world) grow(j *job, n int) bool {
	want := kv.CeilPages(n, w.info.PageTokens) - len(j.pages)
	for want > len(w.free) && len(w.stems) > 0 {
		w.evict(w.r.IntN(len(w.stems)))
	}
	if want > len(w.free) {
		return false
	}
	for range want {
		i := w.r.IntN(len(w.free))
		p := w.free[i]
		w.free = slices.Delete(w.free, i, i+1)
		w.refs[p]++
		j.pages = append(j.pages, p)
	}
	return true
}

func (w *world) evict(i int) {
	w.drop(w.stems[i].pages)
	w.stems = slices.Delete(w.stems, i, i+1)
}

// keep adds a stem of the first n tokens of the job's prompt, which holds their pages. of is the
// job if it still runs, else nil.
func (w *world) keep(j *job, n int, of *job) {
	pages := slices.Clone(j.pages[:kv.CeilPages(n, w.info.PageTokens)])
	for _, p := range pages {
		w.refs[p]++
	}
	w.stems = append(w.stems, stem{slices.Clone(j.prompt[:n]), pages, of})
}

func (w *world) fresh() *job {
	prompt := tokens(w.r.IntN(3)*40, 1+w.r.IntN(30))
	for range w.r.IntN(20) {
		prompt = append(prompt, kv.Token(w.r.IntN(128)))
	}
	j := &job{prompt: prompt, n: 1 + w.r.IntN(8)}
	if w.r.IntN(2) == 0 {
		j.params = engine.SamplingParams{Temperature: 1, Seed: w.r.Uint64()}
	}
	return j
}

// admit gives the job a slot, and the KV of its longest prefix among the stems, with some
// probability. It adds copies of partial pages to b.
func (w *world) admit(b *engine.Batch, j *job) {
	j.slot, w.slots = w.slots[0], w.slots[1:]
	j.bind, j.ran, j.pages, j.asked = true, 0, nil, len(j.out)
	all := append(slices.Clone(j.prompt), j.out...)
	j.target = len(all)
	best, most := -1, 0
	for i, s := range w.stems {
		n := 0
		for limit := min(len(s.tokens), len(all)-1); n < limit && s.tokens[n] == all[n]; n++ {
		}
		if s.of != nil { // whole pages of what is submitted before this row
			n = min(n, s.of.ran)
			n -= n % w.info.PageTokens
		}
		if n > most {
			best, most = i, n
		}
	}
	if best >= 0 && w.r.IntN(5) > 0 {
		s := w.stems[best]
		whole := most / w.info.PageTokens
		j.pages = append(j.pages, s.pages[:whole]...)
		for _, p := range j.pages {
			w.refs[p]++
		}
		j.ran = whole * w.info.PageTokens
		if rest := most - j.ran; rest > 0 {
			src := s.pages[whole]
			w.refs[src]++
			if w.grow(j, most) {
				b.Copies = append(b.Copies, engine.PageCopy{Src: src, Dst: j.pages[whole], Tokens: int32(rest)})
				j.ran = most
			}
			w.drop([]kv.PageID{src}) // may be evicted, and written, by the same batch
		}
	}
	w.live = append(w.live, j)
}

// settle frees the job's pages and slot, and removes the stems that need the job to run.
func (w *world) settle(j *job) {
	w.drop(j.pages)
	w.slots = append(w.slots, j.slot)
	w.live = slices.DeleteFunc(w.live, func(x *job) bool { return x == j })
	for i := len(w.stems) - 1; i >= 0; i-- {
		if w.stems[i].of == j {
			w.evict(i)
		}
	}
}

// row adds the job's next row to b, or nothing.
func (w *world) row(b *engine.Batch, f *flight, j *job) {
	if j.over || j.asked == j.n || w.r.IntN(8) == 0 {
		return
	}
	all := append(slices.Clone(j.prompt), j.out...)
	row := engine.Row{Slot: j.slot, Start: int32(j.ran), Sample: true, SampleIndex: int32(j.asked)}
	hi := j.ran + 1
	switch {
	case j.ran < j.target: // prompt, or what ran before a preemption
		if hi = min(j.target, j.ran+1+w.r.IntN(20)); w.r.IntN(3) == 0 {
			hi = j.target
		}
		row.Tokens, row.Sample = all[j.ran:hi], hi == j.target
	case j.ran < len(all) && w.r.IntN(2) == 0:
		row.Tokens = all[j.ran:hi]
	default:
		row.Deferred = true
	}
	if !w.grow(j, hi) {
		return
	}
	if j.bind {
		b.Binds = append(b.Binds, engine.SlotBind{Slot: j.slot, Sampling: j.params, Prompt: j.prompt, Output: j.out})
		j.bind = false
	}
	row.Pages = slices.Clone(j.pages[:kv.CeilPages(hi, w.info.PageTokens)])
	j.ran = hi
	if row.Sample {
		j.asked++
	}
	b.Rows = append(b.Rows, row)
	f.jobs = append(f.jobs, j)
	if hi == j.target && len(j.out) == 0 && !w.faulty && w.r.IntN(2) == 0 {
		w.keep(j, len(j.prompt), j) // later rows of this batch may share it
	}
}

func (w *world) plan() {
	b, f := &engine.Batch{}, flight{}
	for i := len(w.live) - 1; i >= 0; i-- { // preempt those with nothing in flight
		if j := w.live[i]; w.r.IntN(30) == 0 && len(j.out) == j.asked && !j.over && !j.bind && j.ran >= j.target {
			w.settle(j)
			if len(w.slots) > 0 {
				w.admit(b, j)
			}
		}
	}
	for i := len(w.stems) - 1; i >= 0; i-- {
		if w.r.IntN(20) == 0 {
			w.evict(i)
		}
	}
	for _, j := range slices.Clone(w.live) {
		w.row(b, &f, j)
	}
	for len(w.slots) > 0 && len(b.Rows) < w.info.MaxRows && w.r.IntN(2) == 0 {
		j := w.fresh()
		w.admit(b, j)
		w.row(b, &f, j)
	}
	if w.faulty && len(b.Rows) > 0 && w.r.IntN(6) == 0 {
		w.failing[w.seq+1] = w.r.IntN(len(b.Rows))
	}
	f.batch, f.ticket = b, w.submit(*b)
	w.inflight = append(w.inflight, f)
	for _, j := range slices.Clone(w.live) { // pages are free while their last batch runs
		if !j.over && j.asked == j.n && w.r.IntN(2) == 0 {
			if !w.faulty && w.r.IntN(3) > 0 && j.ran >= len(j.prompt) {
				w.keep(j, len(j.prompt), nil)
			}
			w.settle(j)
		}
	}
}

// collect waits for the oldest batch and takes its tokens.
func (w *world) collect() error {
	f := w.inflight[0]
	w.inflight = w.inflight[1:]
	for {
		if _, err := f.ticket.Result(); !errors.Is(err, engine.ErrPending) {
			break
		}
		if !w.clock.Step() {
			return errors.New("a ticket is pending and no event is")
		}
	}
	res, err := f.ticket.Result()
	if err != nil {
		return err
	}
	for _, o := range res.Out {
		j := f.jobs[o.Row]
		switch {
		case j.over:
		case o.Err != nil:
			j.over = true
			w.failed++
			if slices.Contains(w.live, j) {
				w.settle(j)
			}
		default:
			j.out = append(j.out, o.Token)
			if want := w.b.Expect(j.prompt, j.params, len(j.out), nil); !slices.Equal(j.out, want) {
				return fmt.Errorf("batch %d: prompt %v got %v, want %v", res.Seq, j.prompt, j.out, want)
			}
			if len(j.out) == j.n {
				w.done++
			}
		}
	}
	delete(w.failing, res.Seq)
	return nil
}

func TestLegalWorlds(t *testing.T) {
	done, failed := 0, 0
	for seed := range uint64(60) {
		w := newWorld(t, seed, Config{Sanitize: Mode(seed % 3), Logits: seed%5 == 0})
		for range 150 {
			w.plan()
			for len(w.inflight) == w.info.MaxInflight || len(w.inflight) > 0 && w.r.IntN(3) == 0 {
				if err := w.collect(); err != nil {
					t.Fatalf("seed %d, mode %v: %v", seed, w.b.cfg.Sanitize, err)
				}
			}
		}
		done, failed = done+w.done, failed+w.failed
	}
	t.Logf("%d requests got all their tokens, %d failed by plan", done, failed)
	if done < 2000 || failed < 50 {
		t.Errorf("%d requests done and %d failed: the worlds hardly turn", done, failed)
	}
}
