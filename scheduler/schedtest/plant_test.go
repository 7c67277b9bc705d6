package schedtest

import (
	"errors"
	"flag"
	"testing"
)

var plantWorlds = flag.Int("plant-worlds", 2, "TestPlants: in how many worlds each bug must be found")

// TestPlants: each bug that can be planted is found in several worlds, always by its own
// checker. In some worlds a bug has no opportunity, or no effect.
func TestPlants(t *testing.T) {
	for _, plant := range allPlants() {
		t.Run(plant.String(), func(t *testing.T) {
			found, steps := 0, 60
			if plant == Starve || plant == Favour || plant.fair() {
				steps = 300 // a waiting request must be passed over often
			}
			for seed := uint64(1); seed <= 200 && found < *plantWorlds; seed++ {
				_, err := RunTwin(Options{Seed: seed, Steps: steps}.planted(plant))
				if err == nil {
					continue
				}
				var f *Failure
				if !errors.As(err, &f) || !plant.foundBy(f.Checker) {
					t.Fatalf("want %s to find it: %v", plant.checker(), err)
				}
				if f.Checker == plant.checker() {
					found++
				}
				if found == 1 {
					t.Log(err)
				}
			}
			if found < *plantWorlds {
				t.Errorf("found in %d of 200 worlds, want %d or more", found, *plantWorlds)
			}
		})
	}
}
