package fleet

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
)

// Routing is one of the router's policies, alone or after a first stage.
type Routing struct {
	Router router.Policy
	Staged
}

// Staged is a first stage of routing: it chooses a bucket of workers, among which the
// router's policy then chooses. The zero Staged means no first stage.
type Staged struct {
	Buckets int
	Stage   router.Staging
	// PrefixBlocks is the number of leading blocks of a prompt that choose its bucket under
	// ByPrefix. Default: that of router.Config, 4.
	PrefixBlocks int
}

// routings returns all of the router's policies, without a first stage.
func routings() []Routing {
	var all []Routing
	for _, p := range router.Policies() {
		all = append(all, Routing{Router: p})
	}
	return all
}

// policyForm is the syntax of a policy with a first stage, for error messages.
const policyForm = "buckets:N:turn or buckets:N:prefix:BLOCKS"

// String returns the name of the router's policy. With a first stage, it returns the text that
// [Routing.UnmarshalText] reads, followed by the name of the router's policy unless that is the
// default one.
func (p Routing) String() string {
	if p.Buckets == 0 {
		return p.Router.String()
	}
	text := fmt.Sprintf("buckets:%d:%v", p.Buckets, p.Stage)
	if p.PrefixBlocks != 0 {
		text += fmt.Sprintf(":%d", p.PrefixBlocks)
	}
	if p.Router != router.CostLatency {
		text += " " + p.Router.String()
	}
	return text
}

// UnmarshalText parses the name of a router's policy, or a first stage: buckets:N:turn,
// buckets:N:prefix or buckets:N:prefix:BLOCKS. After a first stage, the router's policy is
// the default one.
func (p *Routing) UnmarshalText(text []byte) error {
	*p = Routing{}
	rest, ok := strings.CutPrefix(string(text), "buckets:")
	if !ok {
		return p.Router.UnmarshalText(text)
	}
	parts := strings.Split(rest, ":")
	bad := func(err any) error { return fmt.Errorf("fleet: policy %q: %v; want %s", text, err, policyForm) }
	if len(parts) < 2 || len(parts) > 3 {
		return bad(fmt.Sprintf("%d parts", 1+len(parts)))
	}
	var err error
	if p.Buckets, err = strconv.Atoi(parts[0]); err != nil || p.Buckets < 1 || p.Buckets > router.MaxBuckets {
		return bad(fmt.Sprintf("%q buckets, of at most %d", parts[0], router.MaxBuckets))
	}
	if err := p.Stage.UnmarshalText([]byte(parts[1])); err != nil {
		return bad(err)
	}
	if len(parts) == 3 {
		if p.PrefixBlocks, err = strconv.Atoi(parts[2]); err != nil || p.PrefixBlocks < 1 || p.Stage != router.ByPrefix {
			return bad(fmt.Sprintf("%q blocks of a prefix", parts[2]))
		}
	}
	return nil
}

// stages makes the first stage b, and returns the pool of each worker, by the worker's number.
// Without a first stage b is nil and all pools are 0, which means none.
func (s *Staged) stages(workers int) (b *router.Buckets, pools []router.PoolID, err error) {
	pools = make([]router.PoolID, workers)
	if s.Buckets == 0 {
		return nil, pools, nil
	}
	blocks := s.PrefixBlocks
	if blocks == 0 {
		blocks = router.Config{}.WithDefaults().PrefixBlocks
	}
	if b, err = router.NewBuckets(s.Buckets, s.Stage, blocks); err != nil {
		return nil, nil, err
	}
	ids := make([]kv.WorkerID, workers)
	for i := range ids {
		ids[i] = idOf(i).Worker
	}
	for i, bucket := range router.Deal(ids, s.Buckets, nil) {
		pools[i] = router.PoolID(bucket + 1)
	}
	return b, pools, nil
}

// idOf returns the kv.Rank of worker i in the router.
func idOf(i int) kv.Rank { return kv.Rank{Worker: kv.WorkerID(i + 1)} }
