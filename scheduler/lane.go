package scheduler

// lane is a part of the queue: waiting sequences by rank, lowest first, and by age.
type lane struct {
	key    laneKey
	at     int // among queue.lanes
	ranked pile
	aged   pile // unused where nobody asks for the oldest
}

// laneKey says whose lane it is. Tenants have lanes of their own where they are
// told apart, response ratios a lane per class of un-cached tokens, and long
// prompts, so that they can be passed by while enough are being computed.
type laneKey struct {
	tenant *tenant
	ratio  int
	long   bool
}

func (l *lane) head() *sequence { return l.ranked.lined[0] }

// pile is a binary heap that knows where each one is.
type pile struct {
	order order
	lined []*sequence
}

// order is by what a pile is sorted, and where sequences keep their place in it.
type order uint8

const (
	byRank order = iota // equal ones by age
	byAge
)

func (o order) before(a, b *sequence) bool {
	if o == byRank && a.rank != b.rank {
		return a.rank < b.rank
	}
	return a.arrival < b.arrival
}

func (p *pile) push(q *sequence) {
	q.lineAt[p.order] = len(p.lined)
	p.lined = append(p.lined, q)
	p.up(q.lineAt[p.order])
}

func (p *pile) remove(q *sequence) {
	at, last := q.lineAt[p.order], len(p.lined)-1
	p.swap(at, last)
	p.lined[last] = nil
	p.lined = p.lined[:last]
	if at < last && !p.down(at) {
		p.up(at)
	}
}

func (p *pile) up(at int) {
	for at > 0 {
		parent := (at - 1) / 2
		if !p.order.before(p.lined[at], p.lined[parent]) {
			return
		}
		p.swap(at, parent)
		at = parent
	}
}

func (p *pile) down(at int) (moved bool) {
	for {
		least := at
		for child := 2*at + 1; child <= 2*at+2 && child < len(p.lined); child++ {
			if p.order.before(p.lined[child], p.lined[least]) {
				least = child
			}
		}
		if least == at {
			return moved
		}
		p.swap(at, least)
		at, moved = least, true
	}
}

func (p *pile) swap(i, j int) {
	p.lined[i], p.lined[j] = p.lined[j], p.lined[i]
	p.lined[i].lineAt[p.order], p.lined[j].lineAt[p.order] = i, j
}
