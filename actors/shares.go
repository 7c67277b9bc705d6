package actors

import "slices"

// shares divides a number of workers among tenants. The items of each tenant wait in a queue of their
// own, and tenants take turns, so a tenant with many items delays the others by at most one.
type shares[T comparable] struct {
	most  int            // items of one tenant that workers may have at a time
	idle  []int          // free workers
	turns []*turn[T]     // tenants with waiting items; next tenant first
	busy  map[string]int // items at workers, by tenant; never 0
}

// turn is a tenant's queue of items, oldest first.
type turn[T comparable] struct {
	tenant string
	items  []T
}

func newShares[T comparable](workers, most int) shares[T] {
	s := shares[T]{most: most, busy: make(map[string]int)}
	for i := range workers {
		s.idle = append(s.idle, i)
	}
	return s
}

// add appends an item to a tenant's queue, unless it is in that queue already.
func (s *shares[T]) add(tenant string, item T) {
	i := slices.IndexFunc(s.turns, func(t *turn[T]) bool { return t.tenant == tenant })
	if i < 0 {
		i = len(s.turns)
		s.turns = append(s.turns, &turn[T]{tenant: tenant})
	}
	if t := s.turns[i]; !slices.Contains(t.items, item) {
		t.items = append(t.items, item)
	}
}

// remove removes an item from the queues of all tenants.
func (s *shares[T]) remove(item T) {
	s.turns = slices.DeleteFunc(s.turns, func(t *turn[T]) bool {
		if i := slices.Index(t.items, item); i >= 0 {
			t.items = slices.Delete(t.items, i, i+1)
		}
		return len(t.items) == 0
	})
}

// take gives an item to a free worker. It picks the tenant with the fewest items at workers, and among
// equals the one that has waited longest for a turn. ok is false if no worker is free, or if each
// tenant with waiting items has s.most at workers.
func (s *shares[T]) take() (tenant string, item T, worker int, ok bool) {
	next := -1
	for i, t := range s.turns {
		if n := s.busy[t.tenant]; n < s.most && (next < 0 || n < s.busy[s.turns[next].tenant]) {
			next = i
		}
	}
	if next < 0 || len(s.idle) == 0 {
		return tenant, item, 0, false
	}
	t := s.turns[next]
	item, t.items = t.items[0], t.items[1:]
	if s.turns = slices.Delete(s.turns, next, next+1); len(t.items) > 0 {
		s.turns = append(s.turns, t)
	}
	worker, s.idle = s.idle[len(s.idle)-1], s.idle[:len(s.idle)-1]
	s.busy[t.tenant]++
	return t.tenant, item, worker, true
}

// done frees a worker that had an item of a tenant.
func (s *shares[T]) done(tenant string, worker int) {
	s.idle = append(s.idle, worker)
	if s.busy[tenant]--; s.busy[tenant] == 0 {
		delete(s.busy, tenant)
	}
}

// goLast lets all other tenants take a turn before this one.
func (s *shares[T]) goLast(tenant string) {
	if i := slices.IndexFunc(s.turns, func(t *turn[T]) bool { return t.tenant == tenant }); i >= 0 {
		t := s.turns[i]
		s.turns = append(slices.Delete(s.turns, i, i+1), t)
	}
}
