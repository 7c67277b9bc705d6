package dirmem

import (
	"fmt"

	"github.com/coppice-llm/coppice/mempool/internal/blockio"
)

// agree sets the quota: the larger one of Config.Bytes and the one that the directory records, or
// Config.Bytes if Config.Shrink permits a smaller one. It records the quota and returns warnings.
func (s *Store) agree() (warnings []string, err error) {
	before, err := blockio.Resize(s.dir, s.cfg.Bytes, s.cfg.Shrink, s.cfg.Inject)
	if err != nil {
		return nil, err
	}
	s.quota.Store(s.cfg.Bytes)
	switch {
	case before <= s.cfg.Bytes:
	case s.cfg.Shrink:
		warnings = append(warnings, fmt.Sprintf("%s: its size was %d bytes and is %d bytes now, for all its users", s.dir, before, s.cfg.Bytes))
	default:
		s.quota.Store(before)
		warnings = append(warnings, fmt.Sprintf("%s: its size is %d bytes for all its users and stays so, not %d bytes; --kv-shrink makes it smaller",
			s.dir, before, s.cfg.Bytes))
	}
	return warnings, nil
}

// renew takes over a quota that another process has recorded. It records this process's key again, if
// another process has overwritten that at the same time.
func (s *Store) renew() {
	c, err := blockio.ReadCard(s.dir)
	if err == nil && c.Bytes >= int64(s.info.SlotBytes) {
		s.quota.Store(c.Bytes)
	}
	if err == nil && c.Identity == s.info.Identity {
		_ = blockio.Readmit(s.dir, c, s.cfg.Sealer, s.cfg.Inject) // the next round repeats it
	}
}
