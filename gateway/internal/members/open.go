package members

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/coppice-llm/coppice/events/nats"
)

// New makes a fleet without workers. Start turns on registration.
func New(cfg Config) (*Fleet, error) {
	f := &Fleet{cfg: cfg, log: cfg.Log, members: map[string]*Member{}, claims: map[uint64]*Member{}, troubles: troubles{by: map[string]error{}}}
	f.snapshot.Store(&Snapshot{})
	f.tokenizers.now.Store(&f.cfg.Tokenizer)
	f.ctx, f.stop = context.WithCancel(context.Background())
	return f, f.subscribe()
}

// Start lets workers register over NATS, if Config.NATS is set.
func (f *Fleet) Start() error {
	if f.cfg.NATS == nil {
		return nil
	}
	at := *f.cfg.NATS
	if at.Notify == nil {
		at.Notify = f.Notify("events and registration")
	}
	var err error
	if f.watcher, err = nats.NewWatcher(nats.WatcherConfig{Config: at}); err == nil {
		f.background.Go(func() { f.watch(f.watcher.Changes()) })
	}
	return err
}

// Close removes all workers and returns when all goroutines have ended.
func (f *Fleet) Close() (err error) {
	f.mu.Lock()
	f.closed = true
	all := slices.Collect(maps.Values(f.members))
	clear(f.members)
	f.mu.Unlock()
	f.dismiss(all)
	f.stop()
	if f.watcher != nil {
		err = errors.Join(err, f.watcher.Close())
	}
	f.background.Wait()
	for _, s := range f.subscribers {
		s.Close()
	}
	return err
}
