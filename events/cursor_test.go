package events

import "testing"

func TestCursor(t *testing.T) {
	var c Cursor
	for _, seq := range []uint64{0, 5, 1<<63 - 1} {
		if v := c.Observe(0, seq); v != Initial {
			t.Errorf("initial, %d: %v", seq, v)
		}
	}
	if v := c.Observe(0, EndSeq); v != Impossible {
		t.Errorf("initial, end: %v", v)
	}
	c.Took(20, 10)
	for _, x := range []struct {
		epoch, seq uint64
		want       Verdict
	}{
		{20, 11, Contiguous}, {0, 11, Contiguous}, {20, 15, Gap}, {0, 12, Gap}, {20, 10, Stale}, {20, 9, Stale}, {0, 0, Stale},
		{21, 0, Restarted}, {21, 11, Restarted}, {19, 11, Stale}, {20, 11 + maxJump, Gap}, {20, 12 + maxJump, Impossible},
		{0, 1 << 63, Impossible}, {0, EndSeq, Impossible},
	} {
		if v := c.Observe(x.epoch, x.seq); v != x.want {
			t.Errorf("epoch %d, %d: %v, want %v", x.epoch, x.seq, v, x.want)
		}
	}
	c.Took(0, 11)
	if n, live := c.Next(); n != 12 || !live || c.Epoch() != 20 {
		t.Errorf("%d %v %d", n, live, c.Epoch())
	}
	c.Reset()
	if _, live := c.Next(); live || c.Observe(3, 99) != Initial {
		t.Error("not initial")
	}
}
