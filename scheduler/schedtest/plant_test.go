package schedtest

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"go/format"
	"os"
	"slices"
	"testing"
)

var (
	plantWorlds = flag.Int("plant-worlds", 2, "TestPlants: in how many worlds each bug must be found")
	update      = flag.Bool("update", false, "TestPlants: search all worlds, and write plantseeds_test.go")
)

// TestPlants: each bug that can be planted is found in several worlds, always by its own
// checker. In some worlds a bug has no opportunity, or no effect: the test plays those of plantSeeds
// first, and searches the others only if these are too few.
func TestPlants(t *testing.T) {
	all := map[Plant][]uint64{}
	for _, plant := range allPlants() {
		t.Run(plant.String(), func(t *testing.T) {
			known := plantSeeds[plant]
			if *update {
				known = nil
			}
			seeds := slices.Clone(known)
			for seed := uint64(1); seed <= 200; seed++ {
				if !slices.Contains(known, seed) {
					seeds = append(seeds, seed)
				}
			}
			found := findPlant(t, plant, seeds)
			if len(found) < *plantWorlds {
				t.Errorf("found in %d of %d worlds, want %d or more", len(found), len(seeds), *plantWorlds)
			}
			if len(known) > 0 && *plantWorlds <= len(known) && !slices.Equal(found, known[:*plantWorlds]) {
				t.Logf("found in the worlds %d instead of %d; again: go test ./scheduler/schedtest -run TestPlants -args -update", found, known)
			}
			all[plant] = found
		})
	}
	if *update && !t.Failed() {
		writePlantSeeds(t, all)
	}
}

// findPlant plays worlds with the bug in this order until it is found in as many as it must be, and returns
// their seeds.
func findPlant(t *testing.T, plant Plant, seeds []uint64) (found []uint64) {
	steps := 60
	if plant == Starve || plant == Favour || plant.fair() {
		steps = 300 // a waiting request must be passed over often
	}
	for _, seed := range seeds {
		if len(found) == *plantWorlds {
			break
		}
		_, err := RunTwin(Options{Seed: seed, Steps: steps}.planted(plant))
		if err == nil {
			continue
		}
		var f *Failure
		if !errors.As(err, &f) || !plant.foundBy(f.Checker) {
			t.Fatalf("want %s to find it: %v", plant.checker(), err)
		}
		if f.Checker == plant.checker() {
			found = append(found, seed)
		}
		if len(found) == 1 {
			t.Log(err)
		}
	}
	return found
}

func writePlantSeeds(t *testing.T, all map[Plant][]uint64) {
	var b bytes.Buffer
	b.WriteString("package schedtest\n\n// plantSeeds has worlds that show each bug, by the bug's number. TestPlants writes it with -update.\nvar plantSeeds = [plantCount][]uint64{\n")
	for _, plant := range allPlants() {
		fmt.Fprintf(&b, "%d: {", plant)
		for i, seed := range all[plant] {
			if i > 0 {
				b.WriteString(", ")
			}
			fmt.Fprint(&b, seed)
		}
		fmt.Fprintf(&b, "}, // %s\n", plant)
	}
	b.WriteString("}\n")
	text, err := format.Source(b.Bytes())
	if err == nil {
		err = os.WriteFile("plantseeds_test.go", text, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
}
