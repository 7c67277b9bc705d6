package mempool

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

func divide(t *testing.T, pages, owners int) *Division {
	t.Helper()
	p, err := NewPool(pages)
	if err != nil {
		t.Fatal(err)
	}
	d, err := Divide(p, owners)
	if err != nil {
		t.Fatal(err)
	}
	for i := range owners {
		if o, err := d.Join(); err != nil || o != Owner(i) {
			t.Fatal(o, err)
		}
	}
	if _, err := d.Join(); !errors.Is(err, ErrDivided) {
		t.Fatalf("owner %d: %v", owners+1, err)
	}
	return d
}

// TestDivisionRecalls: the owner of all pages returns those that another owner lacks of its share,
// and they are kept for that other owner.
func TestDivisionRecalls(t *testing.T) {
	d := divide(t, 10, 2)
	all, free := d.Ask(0, 10, nil)
	if len(all) != 10 || free != 0 || d.Notices(nil) != nil {
		t.Fatalf("%v, %d free", all, free)
	}
	if got, free := d.Ask(1, 3, nil); len(got) != 0 || free != 0 {
		t.Fatalf("%v, %d free", got, free)
	}
	if n := d.Notices(nil); len(n) != 1 || n[0] != (Notice{Owner: 0, Recall: 3}) {
		t.Fatalf("%+v", n)
	}
	d.Give(0, all[:2])
	if n := d.Notices(nil); len(n) != 1 || n[0] != (Notice{Owner: 1, Offer: 2}) {
		t.Fatalf("%+v", n)
	}
	if got, _ := d.Ask(0, 2, nil); len(got) != 0 {
		t.Fatalf("pages kept for another owner are granted: %v", got)
	}
	if got, _ := d.Ask(1, 3, nil); len(got) != 2 {
		t.Fatalf("%v", got)
	}
	if err := d.Check(); err != nil {
		t.Fatal(err)
	}
	if n := d.Leave(0); n != 8 {
		t.Errorf("%d pages were left", n)
	}
}

// TestDivisionWorlds: owners ask, decline and give at random, and return recalled pages at some
// time. Each owner gets its share when it asks for it, and no page has two owners.
func TestDivisionWorlds(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 3))
		owners := 1 + rng.IntN(4)
		d := divide(t, owners+rng.IntN(40), owners)
		has, owes, told := make([][]kv.PageID, owners), make([]int, owners), make([]int, owners)
		heed := func() {
			for _, n := range d.Notices(nil) {
				owes[n.Owner] += n.Recall
				told[n.Owner] += n.Offer
			}
		}
		ask := func(o, n int) (got int) {
			before := len(has[o])
			has[o], told[o] = d.Ask(Owner(o), n, has[o])
			return len(has[o]) - before
		}
		give := func(o, n int) {
			cut := len(has[o]) - min(n, len(has[o]))
			d.Give(Owner(o), has[o][cut:])
			owes[o] = max(0, owes[o]-(len(has[o])-cut))
			has[o] = has[o][:cut]
		}
		for range 300 {
			switch o := rng.IntN(owners); rng.IntN(4) {
			case 0, 1:
				ask(o, 1+rng.IntN(12))
			case 2:
				give(o, rng.IntN(6))
			case 3:
				if told[o] > 0 && rng.IntN(2) == 0 {
					told[o] = 0
					d.Decline(Owner(o))
				}
			}
			heed()
			if err := d.Check(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		// One owner insists on its share; the others give what they owe.
		o := rng.IntN(owners)
		for round := 0; len(has[o]) < d.SharePages(); round++ {
			if round > 100 {
				t.Fatalf("seed %d: owner %d has %d pages of its share of %d: %+v", seed, o, len(has[o]), d.SharePages(), d.members)
			}
			ask(o, d.SharePages()-len(has[o]))
			heed()
			for p := range owners {
				if p != o {
					give(p, owes[p])
				}
			}
			heed()
		}
		for p := range owners {
			give(p, len(has[p]))
		}
		if d.pool.LeasedPages() != 0 {
			t.Fatalf("seed %d: %d pages are leased", seed, d.pool.LeasedPages())
		}
	}
}
