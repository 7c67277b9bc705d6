package gateway

import (
	"os/exec"
	"strings"
	"testing"
)

// TestLinksNoEngine: a routing program links no engine and no scheduler.
func TestLinksNoEngine(t *testing.T) {
	const module = "github.com/coppice-llm/coppice"
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, dep := range strings.Fields(string(out)) {
		path, ours := strings.CutPrefix(dep, module)
		switch first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/"); {
		case !ours:
		case path == "/grammar/toolcall": // names and marks of the forms of calls, which requests of all APIs have
		case first == "", first == "actors", first == "engine", first == "grammar", first == "mempool", first == "radixcache", first == "scheduler", first == "server":
			t.Errorf("the gateway links %s", dep)
		}
	}
}
