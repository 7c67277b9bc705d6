package main

import (
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/openai"
	"github.com/coppice-llm/coppice/radixcache"
	"github.com/coppice-llm/coppice/scheduler"
)

// cacheFlags configure eviction from the prefix cache.
type cacheFlags struct {
	Eviction radixcache.Policy `default:"lru" help:"Eviction policy of the prefix cache: ${evictions}."`
	SLRUHits int               `name:"slru-hits" default:"1" help:"With --eviction slru: a prefix with this many reuses is evicted after all prefixes with fewer."`
	CacheTTL time.Duration     `name:"cache-ttl" default:"0s" help:"Drop cached KV that no request has used for this long. Default: never; only a full pool evicts."`
}

// set sets the flags and the tenants' quotas in a configuration. A tenant's quota covers
// the namespace of its requests without a cache_salt.
func (f *cacheFlags) set(c *scheduler.Config, quotas map[string]cacheQuota) {
	c.Eviction, c.SLRUHits, c.CacheTTL = f.Eviction, f.SLRUHits, f.CacheTTL
	if len(quotas) > 0 {
		c.Quotas, c.MinQuotas = map[kv.Namespace]int{}, map[kv.Namespace]int{}
	}
	for tenant, q := range quotas {
		ns := openai.Namespace(tenant, "")
		c.Quotas[ns], c.MinQuotas[ns] = q.most, q.least
	}
}
