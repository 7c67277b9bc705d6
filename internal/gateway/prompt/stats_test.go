package prompt

// Stats are of the texts whose tokens are remembered.
type Stats struct {
	Texts, Bytes int
	Hits, Misses uint64
}

func (c *textCache) stats() Stats {
	var all Stats
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		all.Texts += len(s.texts)
		all.Bytes += s.bytes
		all.Hits += s.hits
		all.Misses += s.misses
		s.mu.Unlock()
	}
	return all
}

// Stats are of the cache of texts.
func (r *Reader) Stats() Stats {
	if r.cache == nil {
		return Stats{}
	}
	return r.cache.stats()
}
