package recording

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router/decisions"
)

// Config has the path of the file, its limit and the facts in it.
type Config struct {
	Path string
	// MaxBytes bounds the file and the one before it together: at half of it, the file is renamed to Path + ".1", in the place of an
	// earlier one, and a new file begins.
	MaxBytes int64
	Head     func() decisions.Head // of a file that begins now
	Describe func(kv.Rank) decisions.Worker
	Log      *zap.Logger
}

// Entry is a decision that has ended. The Recorder owns it after Add.
type Entry struct {
	Decision *decisions.Decision // its Chosen and the Worker of its Candidates are set by the Recorder
	Chosen   kv.Rank
	Ranks    []kv.Rank // of the candidates
	Hashes   []kv.BlockHash
	Session  uint64
}

// Limits of the queue: entries, and the bytes of their hashes together.
const (
	maxQueued      = 1024
	maxQueuedBytes = 64 << 20
)

// Recorder writes decisions to a file.
type Recorder struct {
	cfg     Config
	entries chan Entry
	bytes   atomic.Int64 // of the hashes of queued entries
	done    chan struct{}
	once    sync.Once
	stop    chan struct{}

	written, dropped atomic.Uint64

	// The rest belongs to the goroutine that writes.
	encoder *decisions.Encoder
	file    *os.File
	out     *bufio.Writer
	size    int64
	buf     []byte
	failed  error // nothing is written after it
}

// Open begins a recording. A file that is there is renamed as one that is full.
func Open(cfg Config) (*Recorder, error) {
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	var key [16]byte
	rand.Read(key[:]) // it never fails
	r := &Recorder{cfg: cfg, entries: make(chan Entry, maxQueued), done: make(chan struct{}), stop: make(chan struct{}), encoder: decisions.NewEncoder(key)}
	if err := r.begin(); err != nil {
		return nil, err
	}
	go r.run()
	return r, nil
}

// Add queues a decision. It returns at once. If there is no room, the decision is dropped.
func (r *Recorder) Add(e Entry) {
	n := int64(8 * len(e.Hashes))
	if r.bytes.Add(n) > maxQueuedBytes {
		r.bytes.Add(-n)
		r.dropped.Add(1)
		return
	}
	select {
	case r.entries <- e:
	default:
		r.bytes.Add(-n)
		r.dropped.Add(1)
	}
}

// Counts returns how many decisions were written, and how many were dropped.
func (r *Recorder) Counts() (written, dropped uint64) { return r.written.Load(), r.dropped.Load() }

// Close writes what is queued and closes the file. The error is that of the first failed write. Later calls do nothing more.
func (r *Recorder) Close() error {
	r.once.Do(func() { close(r.stop) })
	<-r.done
	return r.failed
}

// run writes entries until Close.
func (r *Recorder) run() {
	defer close(r.done)
	for {
		select {
		case e := <-r.entries:
			r.write(e)
			continue
		default:
		}
		if r.failed == nil {
			r.fail(r.out.Flush()) // nothing is queued
		}
		select {
		case e := <-r.entries:
			r.write(e)
		case <-r.stop:
			r.finish()
			return
		}
	}
}

// finish writes what was queued before Close.
func (r *Recorder) finish() {
	for {
		select {
		case e := <-r.entries:
			r.write(e)
		default:
			if r.failed == nil {
				r.fail(errors.Join(r.out.Flush(), r.file.Close()))
			}
			return
		}
	}
}

// write writes one decision, and the workers in it that are new.
func (r *Recorder) write(e Entry) {
	r.bytes.Add(-int64(8 * len(e.Hashes)))
	if r.failed == nil && r.size >= r.cfg.MaxBytes/2 {
		r.fail(errors.Join(r.out.Flush(), r.file.Close()))
		if r.failed == nil {
			r.fail(r.begin())
		}
	}
	if r.failed != nil {
		r.dropped.Add(1)
		return
	}
	b, d := r.buf[:0], e.Decision
	b, d.Chosen = r.encoder.Worker(b, e.Chosen, r.cfg.Describe)
	for i, w := range e.Ranks {
		b, d.Candidates[i].Worker = r.encoder.Worker(b, w, r.cfg.Describe)
	}
	r.put(r.encoder.AppendDecision(b, d, e.Hashes, e.Session))
	if r.failed == nil {
		r.written.Add(1)
	}
}

// begin begins a new file, in the place of the one that is there.
func (r *Recorder) begin() error {
	if old, err := os.Stat(r.cfg.Path); err == nil && old.Mode().IsRegular() && old.Size() > 0 {
		if err := os.Rename(r.cfg.Path, r.cfg.Path+".1"); err != nil {
			return fmt.Errorf("recording: can't move the file that is there: %w", err)
		}
	}
	f, err := os.OpenFile(r.cfg.Path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("recording: can't begin a file: %w", err)
	}
	r.file, r.out, r.size = f, bufio.NewWriterSize(f, 64<<10), 0
	r.put(r.encoder.AppendHead(r.buf[:0], r.cfg.Head()))
	return r.failed
}

// put writes b, and keeps its memory.
func (r *Recorder) put(b []byte) {
	n, err := r.out.Write(b)
	r.size += int64(n)
	r.fail(err)
	if r.buf = b; cap(b) > 1<<20 {
		r.buf = nil
	}
}

// fail keeps and logs the first error. From then on, all decisions are dropped: half a line may be in the file.
func (r *Recorder) fail(err error) {
	if err != nil && r.failed == nil {
		r.failed = err
		r.cfg.Log.Error("decisions are no longer recorded", zap.String("path", r.cfg.Path), zap.Error(err))
	}
}
