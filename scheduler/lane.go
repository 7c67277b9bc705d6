package scheduler

// lane is a part of the queue: waiting sequences by rank, lowest first, equal ones
// by age. A binary heap that knows where each one is.
type lane struct {
	key   laneKey
	at    int // among queue.lanes
	lined []*sequence
}

// laneKey says whose lane it is. Tenants have lanes of their own where they are
// told apart, response ratios a lane per class of un-cached tokens, and long
// prompts, so that they can be passed by while enough are being computed.
type laneKey struct {
	tenant *tenant
	ratio  int
	long   bool
}

func (q *sequence) before(o *sequence) bool {
	if q.rank != o.rank {
		return q.rank < o.rank
	}
	return q.arrival < o.arrival
}

func (l *lane) head() *sequence { return l.lined[0] }

func (l *lane) push(q *sequence) {
	q.lane, q.lineAt = l, len(l.lined)
	l.lined = append(l.lined, q)
	l.up(q.lineAt)
}

func (l *lane) remove(q *sequence) {
	at, last := q.lineAt, len(l.lined)-1
	l.swap(at, last)
	l.lined[last] = nil
	l.lined = l.lined[:last]
	q.lane = nil
	if at < last {
		l.fix(at)
	}
}

// fix restores the order after the rank at one place has changed.
func (l *lane) fix(at int) {
	if !l.down(at) {
		l.up(at)
	}
}

func (l *lane) up(at int) {
	for at > 0 {
		parent := (at - 1) / 2
		if !l.lined[at].before(l.lined[parent]) {
			return
		}
		l.swap(at, parent)
		at = parent
	}
}

func (l *lane) down(at int) (moved bool) {
	for {
		least := at
		for child := 2*at + 1; child <= 2*at+2 && child < len(l.lined); child++ {
			if l.lined[child].before(l.lined[least]) {
				least = child
			}
		}
		if least == at {
			return moved
		}
		l.swap(at, least)
		at, moved = least, true
	}
}

func (l *lane) swap(i, j int) {
	l.lined[i], l.lined[j] = l.lined[j], l.lined[i]
	l.lined[i].lineAt, l.lined[j].lineAt = i, j
}
