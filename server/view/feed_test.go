package view

import (
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func decode(t *testing.T, frame []byte) *State {
	t.Helper()
	s := &State{}
	if err := json.Unmarshal(frame, s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestIdleFeedAsksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &fake{tree: grown(10, 1)}
		f := NewFeed(Config{Source: src})
		defer f.Close()
		time.Sleep(time.Hour)
		if asked, _ := src.count(); asked != 0 {
			t.Fatalf("asked %d times before the first watch", asked)
		}
		w, err := f.Watch(Full, "")
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			<-w.Frames()
		}
		w.Close()
		time.Sleep(linger + time.Second)
		asked, walks := src.count()
		if want := 10 + int(linger/(500*time.Millisecond)) - 1; asked != want || walks != asked {
			t.Errorf("asked %d times, %d walks, want %d", asked, walks, want)
		}
		time.Sleep(time.Hour)
		if later, _ := src.count(); later != asked {
			t.Errorf("asked %d times more without watchers", later-asked)
		}
	})
}

func TestSlowWatchersSkip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFeed(Config{Source: &fake{}})
		defer f.Close()
		slow, err := f.Watch(Full, "")
		if err != nil {
			t.Fatal(err)
		}
		quick, err := f.Watch(Redacted, "")
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if !decode(t, <-quick.Frames()).Server.Redacted {
				t.Fatal("a frame for others")
			}
		}
		synctest.Wait()
		s := decode(t, <-slow.Frames())
		if s.Server.Redacted || len(s.History.AtMillis) != 20 {
			t.Errorf("frame %d, redacted %v; want the latest, 20", len(s.History.AtMillis), s.Server.Redacted)
		}
		slow.Close()
		quick.Close()
	})
}

func TestLateWatchersHaveAFrameAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFeed(Config{Source: &fake{}})
		defer f.Close()
		first, _ := f.Watch(Full, "")
		<-first.Frames()
		time.Sleep(50 * time.Millisecond)
		begun := time.Now()
		second, err := f.Watch(Full, "")
		if err != nil {
			t.Fatal(err)
		}
		if <-second.Frames(); time.Since(begun) != 0 {
			t.Errorf("it took %v", time.Since(begun))
		}
		other, _ := f.Watch(Redacted, "") // the first watcher with Redacted access
		if <-other.Frames(); time.Since(begun) > 500*time.Millisecond {
			t.Errorf("it took %v", time.Since(begun))
		}
	})
}

func TestWatchersAreBounded(t *testing.T) {
	f := NewFeed(Config{Source: &fake{}, MaxWatchers: 2})
	one, err := f.Watch(Full, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Watch(Full, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Watch(Full, ""); !errors.Is(err, ErrTooMany) {
		t.Errorf("the third: %v", err)
	}
	one.Close()
	one.Close()
	last, err := f.Watch(Redacted, "")
	if err != nil {
		t.Errorf("after one has gone: %v", err)
	}
	if _, err := f.Watch(Denied, ""); err == nil {
		t.Error("a caller with access Denied watches")
	}
	f.Close()
	f.Close()
	for range last.Frames() { // until it is closed
	}
	if _, err := f.Watch(Full, ""); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestFailuresAreShown: a failed node is shown as such, with its last figures.
func TestFailuresAreShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &fake{tree: grown(10, 1)}
		src.stats.Scheduler.Requests = 5
		f := NewFeed(Config{Source: src})
		defer f.Close()
		w, _ := f.Watch(Full, "")
		if s := decode(t, <-w.Frames()); s.Server.Error != "" || len(s.Tree.Shown) != 10 {
			t.Fatalf("%+v", s)
		}
		src.set(func(f *fake) { f.err = errors.New("the node is closed") })
		if s := decode(t, <-w.Frames()); s.Server.Error != "the node is closed" || s.Totals.Requests != 5 || len(s.Tree.Shown) != 10 {
			t.Errorf("%+v", s)
		}
		src.set(func(f *fake) { f.err = nil })
		if s := decode(t, <-w.Frames()); s.Server.Error != "" {
			t.Errorf("%+v", s)
		}
	})
}

func TestFinishedAreNewestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFeed(Config{Source: &fake{}, Listed: 3})
		defer f.Close()
		for n := range 5 {
			f.Finish(Finished{Reason: "stop", PromptTokens: n})
		}
		w, _ := f.Watch(Full, "")
		if s := decode(t, <-w.Frames()); len(s.Finished) != 3 || s.Finished[0].PromptTokens != 4 || s.Finished[2].PromptTokens != 2 {
			t.Errorf("%+v", s.Finished)
		}
	})
}

// TestMakeRoom: at the limit of watchers, a watcher with more access displaces one with less, and
// a tenant with few watches displaces a watch of a tenant with many. No tenant can lock out
// another.
func TestMakeRoom(t *testing.T) {
	f := NewFeed(Config{Source: &fake{}, MaxWatchers: 4})
	defer f.Close()
	watch := func(access Access, tenant string) *Watch {
		t.Helper()
		w, err := f.Watch(access, tenant)
		if err != nil && !errors.Is(err, ErrTooMany) {
			t.Fatal(err)
		}
		return w
	}
	ended := func(w *Watch) bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		_, on := f.watchers[w]
		return !on
	}
	var a []*Watch
	for range 4 {
		a = append(a, watch(Redacted, "a"))
	}
	if watch(Redacted, "a") != nil {
		t.Error("a fifth of one tenant")
	}
	if watch(Redacted, "b") == nil || !ended(a[3]) {
		t.Error("a tenant with none did not take the youngest of the one with all")
	}
	if watch(Redacted, "b") == nil || !ended(a[2]) {
		t.Error("the next one did not take the second youngest")
	}
	if watch(Redacted, "b") != nil {
		t.Error("two and two are as close as they get")
	}
	root := watch(Full, "root")
	if root == nil {
		t.Fatal("an admin was locked out")
	}
	for range 3 {
		if watch(Full, "root") == nil {
			t.Error("an admin was locked out by tenants")
		}
	}
	if watch(Full, "root") != nil || watch(Redacted, "a") != nil || ended(root) {
		t.Error("admins gave way to less")
	}
	if watch(Full, "other") == nil {
		t.Error("another admin was locked out by the first")
	}
	for w := range a[3].Frames() {
		_ = w
	}
	a[3].Close()
}
