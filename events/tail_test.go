package events

import (
	"errors"
	"iter"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

var errLagged = errors.New("lagged")

// ringSource is a source of numbered events that keeps the last ones and has its reader
// lag, as a node does.
type ringSource struct {
	all    []kv.Event
	next   int // of those that have happened
	keep   int
	lags   []int // the reader lags behind so many events that it was given in all,
	jumps  []int // while so many more happen
	end    error // yielded when all have been read; nil: just the end
	opened []uint64
	given  int
}

func (s *ringSource) open(from uint64) iter.Seq2[kv.Event, error] {
	s.opened = append(s.opened, from)
	return func(yield func(kv.Event, error) bool) {
		if int(from) < s.next-s.keep || int(from) > s.next {
			yield(kv.Event{}, errLagged)
			return
		}
		for i := int(from); ; i++ {
			if len(s.lags) > 0 && s.given == s.lags[0] {
				s.next = min(s.next+s.jumps[0], len(s.all))
				s.lags, s.jumps = s.lags[1:], s.jumps[1:]
				yield(kv.Event{}, errLagged)
				return
			}
			if i == len(s.all) {
				if s.end != nil {
					yield(kv.Event{}, s.end)
				}
				return
			}
			s.next, s.given = max(s.next, i+1), s.given+1
			if !yield(s.all[i], nil) {
				return
			}
		}
	}
}

// A reader that lags goes on, without a loss where the source keeps what is missing, and
// with a gap that is announced where it does not.
func TestTail(t *testing.T) {
	ended := errors.New("ended")
	for _, tc := range []struct {
		name         string
		keep, say    int
		lags, jumps  []int
		opened       []uint64
		gaps, missed uint64
		end          error
	}{
		{"never", 4, 4, nil, nil, []uint64{0}, 0, 0, nil},
		{"kept", 4, 4, []int{5, 9}, []int{4, 3}, []uint64{0, 5, 9}, 0, 0, ended},
		{"lost", 4, 4, []int{3}, []int{17}, []uint64{0, 3, 7, 11, 15, 19}, 1, 16, ended},
		{"lost at once", 4, 4, []int{0}, []int{9}, []uint64{0, 4, 8}, 1, 8, nil},
		{"keeps more than it says", 8, 3, []int{3}, []int{17}, []uint64{0, 3, 6, 9, 12}, 1, 9, nil},
		{"says nothing", 4, 0, []int{3}, []int{7}, []uint64{0, 3, 4, 5, 6}, 1, 3, nil},
		{"twice", 2, 2, []int{3, 6}, []int{6, 6}, []uint64{0, 3, 5, 7, 10, 12, 14}, 2, 8, ended},
		{"all of it", 4, 4, []int{30}, []int{0}, []uint64{0, 30}, 0, 0, ended},
	} {
		t.Run(tc.name, func(t *testing.T) {
			src := &ringSource{keep: tc.keep, lags: tc.lags, jumps: tc.jumps, end: tc.end}
			for i := range 30 { // each a sequence of its own, so that none lacks its parent
				ev := chain(nil, kv.Token(i+1))
				ev.Seq = uint64(i)
				src.all = append(src.all, ev)
			}
			tap := newTap()
			p := mustPublisher(t, PublisherConfig{}, tap)
			if err := p.Tail(src.open, errLagged, tc.say); !errors.Is(err, tc.end) || tc.end == nil && err != nil {
				t.Fatal(err)
			}
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(src.opened, tc.opened) {
				t.Errorf("opened from %v, want %v", src.opened, tc.opened)
			}
			// The publisher gives up what it has not sent yet when a gap comes, and takes two
			// for one if nothing was sent between.
			if m := p.Metrics(); m.Gaps > tc.gaps || (m.Gaps == 0) != (tc.gaps == 0) || m.LostEvents+m.Events != 30 || m.LostEvents < tc.missed {
				t.Errorf("%v, want %d gaps and %d events missed", m, tc.gaps, tc.missed)
			}
			got := make(map[tierHash]kv.LocalHash)
			residency(t, got, payloads(tap.sent)...)
			if m := p.Metrics(); uint64(len(got)) != m.HeldBlocks || tc.gaps == 0 && len(got) != 30 || tc.gaps > 0 && uint64(len(got)) > 30-tc.missed {
				t.Errorf("readers have %d blocks, %v", len(got), m)
			}
			if last := src.all[29].Blocks[0].Hash; got[tierHash{kv.TierDevice, last}] == 0 {
				t.Error("the last block was not published")
			}
		})
	}
}
