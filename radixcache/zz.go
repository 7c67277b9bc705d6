package radixcache

import (
	"os"
	"strconv"
)

func zz(name string, def float64) float64 {
	if v, err := strconv.ParseFloat(os.Getenv("ZZ_"+name), 64); err == nil {
		return v
	}
	return def
}

var (
	zzNoLearn  = zz("NOLEARN", 0) > 0
	zzNoComing = zz("NOCOMING", 0) > 0
	zzNoStale  = zz("NOSTALE", 0) > 0
	zzNoCost   = zz("NOCOST", 0) > 0
	zzKindOnly = zz("KINDONLY", 0) > 0
	zzOneKind  = zz("ONEKIND", 0) > 0
	zzEvery    = int(zz("EVERY", 128))
	zzCoarse   = uint64(zz("COARSE", float64(coarse)))
	zzCoarseN  = uint64(zz("COARSEN", 1))
)

var zzTrace = zz("TRACE", 0) > 0
var zzSeen = map[string]int{}

func (t *tree) zzVictim(id NodeID) {
	best := id
	for _, k := range t.common.ranked.Items {
		if t.nodes[k.id].stamp < t.nodes[best].stamp {
			best = k.id
		}
	}
	s := t.turns.by
	if best == id || s == nil {
		zzSeen["lru"]++
		return
	}
	zzSeen["other"]++
	if zzSeen["other"] > 60 {
		return
	}
	for _, x := range []NodeID{id, best} {
		n := &t.nodes[x]
		m := n.mark
		println("node", x, "stamp", n.stamp, "age", s.age(&n.use), "worth", m>>22&1023, "class", m>>14&255, "ended", m>>10&1, "stale", m>>11&1, "held", m>>12&1, "coming", m>>13&1, "forks", m>>6&15, "turns", m&63, "end", n.end(), "pages", n.pages.Len(), "tail", t.isTail(n), "rank", s.rank(&n.use, n.end()))
	}
	println("--", zzSeen["lru"], zzSeen["other"])
}
