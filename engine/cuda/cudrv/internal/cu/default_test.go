package cu_test

import (
	"os/exec"
	"strings"
	"testing"
)

// TestNotInTheDefaultBinary checks that no package of a build without tags depends on gorgonia.org/cu,
// which ends a process on a machine without a GPU, and that this package with the tag cuda does.
func TestNotInTheDefaultBinary(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "../../../../../...").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if list := string(out); strings.Contains(list, "gorgonia.org") || !strings.Contains(list, "github.com/coppice-llm/coppice/cmd/coppice") {
		t.Errorf("without the tag the packages need %s", list)
	}
	tagged, err := exec.Command("go", "list", "-deps", "-tags", "cuda", ".").CombinedOutput()
	if err == nil && !strings.Contains(string(tagged), "gorgonia.org/cu") && strings.Contains(string(tagged), "runtime/cgo") {
		t.Errorf("with the tag this package does not need gorgonia.org/cu:\n%s", tagged)
	}
}
