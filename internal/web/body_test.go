package web

import (
	"net/http/httptest"
	"strings"
	"testing"
)

// TestBodiesLeaveRoom checks that long bodies leave a quarter of the room to short ones, and that a body of the limit fits
// if no other is held.
func TestBodiesLeaveRoom(t *testing.T) {
	const most, limit = 1 << 20, 512 << 10
	read := func(held, length, limit int) error {
		b := Bodies{Most: most}
		b.Add(int64(held))
		w, r := httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader(strings.Repeat("x", length)))
		got, err := b.Read(w, r, nil, limit, nil)
		if int(b.Load()) != held+len(got) {
			t.Errorf("%d bytes are counted, %d were held and %d read", b.Load(), held, len(got))
		}
		return err
	}
	for _, tc := range []struct {
		held, length, limit int
		want                error
	}{
		{0, limit, limit, nil},
		{most * 3 / 4, 200, limit, nil},
		{most - 64<<10, 64 << 10, limit, nil},
		{most - 100, 200, limit, errBodies},
		{most * 5 / 8, 200 << 10, limit, errBodies},
		{0, most, most, nil},
	} {
		if err := read(tc.held, tc.length, tc.limit); err != tc.want {
			t.Errorf("%+v: %v", tc, err)
		}
	}
}
