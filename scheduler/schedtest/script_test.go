package schedtest

import (
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestScripts runs the scripts in testdata, which also document the scheduler. After an
// intended change of behaviour, rewrite them and review the diff:
//
//	go test ./scheduler/schedtest -run TestScripts -rewrite
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
