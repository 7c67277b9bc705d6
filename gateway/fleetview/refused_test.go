package fleetview

import "testing"

// TestRefusedIsNotFailed: a request that is refused for its own fault does not count as a failure of the
// fleet, and one whose client left counts as neither.
func TestRefusedIsNotFailed(t *testing.T) {
	c := NewRecorder()
	for _, status := range []int{200, 400, 404, 413, 429, 499, 500, 502, 503} {
		c.Add(Routed{Worker: "a", Status: status})
	}
	fleet, workers, _ := c.Read(c.ring[1].Ended)
	if want := (Sums{Requests: 9, Failed: 4, Refused: 3}); fleet != want || workers["a"] != want {
		t.Errorf("the fleet has %+v, the worker %+v, want %+v", fleet, workers["a"], want)
	}
}
