package router

import (
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// TestTierWeightsText: weights survive a round trip through text; tiers that are not named
// get their defaults.
func TestTierWeightsText(t *testing.T) {
	if got, want := DefaultTierWeights().String(), "device=1,host=0.8,disk=0.6,shared=0.4,object=0.2"; got != want {
		t.Errorf("defaults are %s, want %s", got, want)
	}
	var w TierWeights
	if err := w.UnmarshalText([]byte("host=0.5, object=0")); err != nil {
		t.Fatal(err)
	}
	want := DefaultTierWeights()
	want[kv.TierHost], want[kv.TierObject] = 0.5, 0
	if w != want {
		t.Errorf("%v, want %v", w, want)
	}
	var again TierWeights
	if err := again.UnmarshalText([]byte(w.String())); err != nil || again != w {
		t.Errorf("%v, %v", again, err)
	}
	for _, text := range []string{"", "host", "host=", "tape=1", "host=0.1,host=0.2", "host=1.5", "disk=-1", "disk=NaN", "device=0,host=0,disk=0,shared=0,object=0"} {
		if err := w.UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), "router: ") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if w != want {
		t.Error("a text that is refused changes the weights")
	}
}
