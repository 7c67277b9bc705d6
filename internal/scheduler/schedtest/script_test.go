package schedtest

import (
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestScripts runs the scripts in testdata, which read as a description of the
// scheduler. After a change that is meant, rewrite them and read the difference:
//
//	go test ./internal/scheduler/schedtest -run TestScripts -rewrite
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		script := NewScript()
		datadriven.RunTest(t, path, func(_ *testing.T, d *datadriven.TestData) string {
			args := make([]Arg, len(d.CmdArgs))
			for i, a := range d.CmdArgs {
				args[i] = Arg{a.Key, a.Vals}
			}
			return script.Do(d.Cmd, args...) + "\n"
		})
	})
}
