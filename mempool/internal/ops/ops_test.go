package ops

import (
	"errors"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
)

// TestPutAgain checks that a Put of an extent which is submitted while a worker still uses a Put of
// that extent that was given up counts as the Put before that of a child.
func TestPutAgain(t *testing.T) {
	l := mempool.Layout{PageTokens: 1, PageBytes: 8, ExtentPages: 1}
	xs := l.AppendExtents(nil, kv.Namespace{}, make([]kv.Token, 2), nil)
	begun, leave := make(chan mempool.OpID, 3), [4]chan struct{}{1: make(chan struct{}), 2: make(chan struct{})}
	var before *Job
	var q *Queue
	q = New(mempool.StoreInfo{Identity: mempool.Identity{Layout: l}, MaxOps: 3}, 2, func(_ int, j *Job) mempool.Done {
		if j.Op.ID == 3 {
			before = q.PutBefore(j.Op.Extent.Parent, j)
			close(leave[2])
		}
		begun <- j.Op.ID
		if j.Op.ID < 3 {
			<-leave[j.Op.ID]
		}
		return mempool.Done{}
	})
	put := func(id mempool.OpID, x mempool.Extent) {
		if err := q.Submit(mempool.Op{ID: id, Kind: mempool.Put, Extent: x, Pages: [][]byte{make([]byte, 8)}}); err != nil {
			t.Fatal(err)
		}
	}
	put(1, xs[0])
	<-begun
	q.Cancel(1, mempool.ErrCanceled)
	put(2, xs[0])
	<-begun
	close(leave[1])
	put(3, xs[1])
	<-begun
	q.End()
	if before == nil || before.Op.ID != 2 {
		t.Errorf("the Put before that of the child is %+v, want number 2", before)
	}
}

// TestStuck checks that a store of whose calls none returns refuses operations with ErrStuck, not
// before all of its workers wait, and that it takes operations again when one of them returns.
func TestStuck(t *testing.T) {
	begun, leave := make(chan struct{}, 9), make(chan struct{})
	q := New(mempool.StoreInfo{MaxOps: 9}, 2, func(int, *Job) mempool.Done {
		begun <- struct{}{}
		<-leave
		return mempool.Done{}
	})
	q.limit = 0 // a call that has begun is stuck
	flush := func(id mempool.OpID, want error) {
		t.Helper()
		if err := q.Submit(mempool.Op{ID: id, Kind: mempool.Flush}); !errors.Is(err, want) {
			t.Errorf("operation %d: %v, want %v", id, err, want)
		}
	}
	for id := range mempool.OpID(2) {
		flush(id+1, nil)
		<-begun
	}
	flush(3, mempool.ErrStuck)
	flush(4, mempool.ErrBusy) // what callers know
	q.Cancel(1, mempool.ErrDeadline)
	if done := q.Poll(nil); len(done) != 1 || !errors.Is(done[0].Err, mempool.ErrDeadline) {
		t.Errorf("a canceled operation that hangs ends as %+v", done)
	}
	q.limit = time.Hour
	flush(5, nil)
	q.Cancel(5, mempool.ErrCanceled)
	close(leave)
	q.End()
}
