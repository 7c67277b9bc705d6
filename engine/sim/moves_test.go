package sim

import (
	"errors"
	"testing"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

type direction bool

const (
	toHost   direction = false
	fromHost direction = true
)

// move begins a move of one page.
func (d *bed) move(id engine.MoveID, way direction, p kv.PageID, host []byte) {
	d.t.Helper()
	m := &engine.Move{ID: id, From: kv.TierDevice, To: kv.TierHost, Pages: []kv.PageID{p}}
	if way == fromHost {
		m.From, m.To = m.To, m.From
	}
	if err := d.b.Move(m, [][]byte{host}); err != nil {
		d.t.Fatal(err)
	}
}

// saved is a bed whose page 0 holds four tokens and was copied to host memory.
func saved(t *testing.T, cfg Config) (*bed, []byte) {
	d := newBed(t, cfg)
	d.run(rows(prefill(0, tokens(1, 4), 0)))
	host, err := d.b.HostAlloc(d.b.Info().PageBytes)
	if err != nil {
		t.Fatal(err)
	}
	d.move(1, toHost, 0, host)
	for d.clock.Step() {
	}
	if moved := d.b.Moved(nil); len(moved) != 1 || moved[0] != (engine.Moved{ID: 1}) {
		t.Fatalf("moved: %v", moved)
	}
	<-d.b.Ready()
	return d, host
}

// TestWaitsForMoves checks that only batches that list a pending move in After may use the page
// that the move writes.
func TestWaitsForMoves(t *testing.T) {
	for i := range 4 {
		waits, copies := i%2 == 0, i/2 == 0
		d, host := saved(t, Config{})
		d.move(2, fromHost, 7, host)
		b := rows(next(1, 4, tokens(9, 1), 7, 8))
		if copies {
			b = rows(next(1, 3, tokens(9, 1), 9))
			b.Copies = []engine.PageCopy{{Src: 7, Dst: 9, Tokens: 3}}
		}
		if waits {
			b.After = []engine.MoveID{2}
		}
		if _, err := d.try(b); errors.Is(err, ErrCorrupt) == waits {
			t.Errorf("waits %v, copies %v: %v", waits, copies, err)
		}
		if waits {
			d.run(rows(next(2, 4, tokens(9, 1), 7, 9))) // it has arrived
		}
	}
}

// TestWritesWaitForMoves checks that any batch may read the page that a pending move reads, and
// that only batches that list the move in After may write the page.
func TestWritesWaitForMoves(t *testing.T) {
	for i := range 4 {
		waits, writes := i%2 == 0, i/2 == 0
		d, host := saved(t, Config{})
		d.move(2, toHost, 0, host)
		b := rows(next(1, 4, tokens(9, 1), 0, 8))
		if writes {
			b = rows(prefill(1, tokens(3, 4), 0))
		}
		if waits {
			b.After = []engine.MoveID{2}
		}
		if _, err := d.try(b); errors.Is(err, ErrCorrupt) != (writes && !waits) {
			t.Errorf("waits %v, writes %v: %v", waits, writes, err)
		}
	}
}

// TestFailedMove checks rows and copies that read a page which a failed move should have written:
// their rows fail with ErrMove. Other rows run, and the page is valid again once another move or a
// row has written it.
func TestFailedMove(t *testing.T) {
	fails := func(id engine.MoveID) error {
		if id == 2 {
			return errPlanted
		}
		return nil
	}
	d, host := saved(t, Config{Faults: Faults{Move: fails}})
	d.move(2, fromHost, 7, host)
	b := rows(next(1, 4, tokens(9, 1), 7, 8), prefill(2, tokens(5, 4), 5))
	b.After = []engine.MoveID{2}
	res := d.run(b)
	if !errors.Is(res.Out[0].Err, engine.ErrMove) || res.Out[1].Err != nil {
		t.Errorf("a row that reads what was not moved: %+v", res.Out)
	}
	if moved := d.b.Moved(nil); len(moved) != 1 || !errors.Is(moved[0].Err, engine.ErrMove) || !errors.Is(moved[0].Err, errPlanted) {
		t.Errorf("moved: %v", moved)
	}
	b = rows(next(3, 3, tokens(9, 1), 9))
	b.Copies = []engine.PageCopy{{Src: 7, Dst: 9, Tokens: 3}}
	if res := d.run(b); !errors.Is(res.Out[0].Err, engine.ErrMove) {
		t.Errorf("a copy of what was not moved: %+v", res.Out)
	}
	d.move(3, fromHost, 7, host)
	b = rows(next(1, 4, tokens(9, 1), 7, 8), prefill(2, tokens(4, 4), 9))
	b.After = []engine.MoveID{3}
	for range 2 {
		for _, out := range d.run(b).Out {
			if out.Err != nil {
				t.Errorf("after another move: %v", out.Err)
			}
		}
		b = rows(next(4, 4, tokens(9, 1), 9, 3)) // its page was rewritten
	}
}
