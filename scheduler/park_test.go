package scheduler

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool/tiering"
)

// TestPark: a park writes what no tier has, parents first, to the disk; when all writes have ended, and not before, the prefix leaves the
// device, but for what another prefix continues.
func TestPark(t *testing.T) {
	var tiers tiering.Config
	tiers.Tiers[kv.TierDisk].Bytes = 64
	h := newTierRig(t, tiers, 32, 1)
	h.add(1, seq(0, 64), 1)
	h.run()
	h.add(2, append(seq(0, 32), seq(1, 32)...), 1)
	h.run()
	held := h.s.Cache().Stats().Pages
	h.hold = true
	if err := h.s.Park(h.now, 7, kv.Namespace{}, seq(0, 64), 0); err != nil {
		t.Fatal(err)
	}
	var moves []string
	for range 4 {
		moves = append(moves, h.step()...)
	}
	if want := []string{"write [0,16)", "write [16,32)", "write [32,48)", "write [48,64)"}; !slices.Equal(moves, want) || len(h.s.Unparked(nil)) > 0 || h.s.Cache().Stats().Pages != held {
		t.Errorf("%q, want %q; %d of %d pages", moves, want, h.s.Cache().Stats().Pages, held)
	}
	h.release()
	ends := h.s.Unparked(nil)
	if got := fmt.Sprint(ends); got != "[{7 64 disk <nil>}]" || h.s.Cache().Stats().Pages != held-2 || len(h.s.Unparked(nil)) > 0 {
		t.Errorf("%s; %d pages of %d", got, h.s.Cache().Stats().Pages, held)
	}
	h.hold = false
	h.add(3, seq(0, 65), 1)
	if moves := h.run(); !slices.Contains(moves, "read [32,48)") || slices.Contains(moves, "read [16,32)") {
		t.Errorf("a request with the prefix: %q", moves)
	}
}

// TestParkEnds: a write that fails is tried twice, a tier without progress is given up after a time, and no park outlives its scheduler's cache or device. The prefix
// stays on the device then.
func TestParkEnds(t *testing.T) {
	broken := errors.New("broken")
	for name, end := range map[string]struct {
		do   func(h *tierRig)
		want error
	}{
		"writes fail": {func(h *tierRig) {
			for range 4 {
				h.step()
				for _, id := range slices.Clone(h.held) {
					h.s.Moved(h.now, id, broken, 0)
				}
				h.held = nil
			}
		}, ErrParkFailed},
		"no progress": {func(h *tierRig) {
			h.step()
			if at, some := h.s.NextExpiry(); !some || at > h.now+parkPatience {
				t.Errorf("the next limit is %v, %v", at, some)
			}
			h.now += parkPatience
			h.step()
		}, ErrParkFailed},
		"flush":  {func(h *tierRig) { h.s.FlushCache() }, ErrParkFailed},
		"device": {func(h *tierRig) { h.s.Fail(h.now, broken, nil) }, broken},
		"caller": {func(h *tierRig) { h.s.Unpark(1) }, nil},
	} {
		var tiers tiering.Config
		h := newTierRig(t, tiers, 32, 1)
		h.hold = true
		h.add(1, seq(0, 64), 1)
		h.run()
		pages := h.s.Cache().Stats().Pages
		if err := h.s.Park(h.now, 1, kv.Namespace{}, seq(0, 64), 0); err != nil {
			t.Fatal(err)
		}
		end.do(h)
		ends := h.s.Unparked(nil)
		if end.want == nil {
			if h.release(); len(ends)+len(h.s.Unparked(nil)) > 0 {
				t.Errorf("%s: %v", name, ends)
			}
		} else if len(ends) != 1 || !errors.Is(ends[0].Err, end.want) {
			t.Errorf("%s: %v, want %v", name, ends, end.want)
		}
		if name != "flush" && h.s.Cache().Stats().Pages != pages {
			t.Errorf("%s: the prefix has left the device", name)
		}
		if err := h.s.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestParkRefuses: what can't be parked is refused at once.
func TestParkRefuses(t *testing.T) {
	h := newTierRig(t, tiering.Config{}, 32, 1)
	h.hold = true
	if err := h.s.Park(h.now, 1, kv.Namespace{}, []kv.Token{500}, 0); !errors.Is(err, ErrInvalid) {
		t.Errorf("a token outside the vocabulary: %v", err)
	}
	if err := h.s.Park(h.now, 2, kv.Namespace{}, seq(0, 64), 0); err != nil || fmt.Sprint(h.s.Unparked(nil)) != "[{2 0 host <nil>}]" {
		t.Errorf("a prefix that is nowhere: %v", err)
	}
	h.add(1, seq(0, 64), 1)
	h.run()
	var err error
	n := 0
	for ; err == nil && n <= maxParks; n++ {
		err = h.s.Park(h.now, ParkID(10+n), kv.Namespace{}, seq(0, 64), 0)
	}
	if !errors.Is(err, ErrQueueFull) || n != maxParks+1 {
		t.Errorf("%v after %d", err, n)
	}
	h.now += time.Millisecond
	if err := h.s.RestoreSession(SessionRef{Name: "a"}, seq(0, 64), 0); err != nil {
		t.Error(err)
	}
	if err := h.s.RestoreSession(SessionRef{}, seq(0, 64), 0); !errors.Is(err, ErrInvalid) {
		t.Errorf("a session without a name: %v", err)
	}
	if err := h.s.ExpectSession(h.now, SessionRef{Name: "a"}, 0); err != nil {
		t.Errorf("a restored session: %v", err)
	}
}
