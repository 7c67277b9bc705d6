package prompt

// Stats counts the cached texts.
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

// Stats returns the counts of the text cache.
func (r *Reader) Stats() Stats {
	if r.cache == nil {
		return Stats{}
	}
	return r.cache.stats()
}
