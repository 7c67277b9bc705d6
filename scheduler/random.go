package scheduler

import (
	"github.com/coppice-llm/coppice/internal/splitmix"
	"github.com/coppice-llm/coppice/scheduler/internal/accounts"
)

// Random serves in an order that Config.Seed and the request's ID determine.
const Random Policy = 5

var random = policy{
	name:    "random",
	starves: true,
	order:   func(cfg *Config, _ *accounts.Accounts) ordering { return randomOrdering{seed: cfg.Seed} },
}

type randomOrdering struct {
	plainOrdering
	seed uint64
}

func (o randomOrdering) rank(q *sequence) int64 {
	return int64(mix(o.seed, uint64(q.req.ID), uint64(q.sample)) >> 1) // >> 1: not negative
}

// mix hashes words.
func mix(words ...uint64) uint64 {
	z := uint64(0)
	for _, w := range words {
		z = splitmix.Mix((z ^ w) + splitmix.Golden)
	}
	return z
}
