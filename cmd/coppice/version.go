package main

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"text/tabwriter"

	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/internal/terminal"
)

// What tools/release knows of a build, set by the linker's -X. They are empty in other builds,
// which have it from Go's own record if the build saw the repository.
var released, releasedCommit, releasedDate string

// version returns the version of this build, "devel" for one from a checkout.
func version() string { return builtFrom().Version }

// build describes this program.
type build struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Date    string `json:"date,omitempty"` // of the commit, RFC 3339
	Go      string `json:"go"`
	Target  string `json:"target"`
	CPU     string `json:"cpu,omitempty"` // path of the CPU engine; only in the answer of coppice version
}

// builtFrom returns what is known of this program, without its path of the CPU.
func builtFrom() build {
	b := build{Version: released, Commit: releasedCommit, Date: releasedDate, Go: runtime.Version(), Target: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		b.Version = cmp.Or(b.Version, "devel")
		return b
	}
	if info.Main.Version != "(devel)" {
		b.Version = cmp.Or(b.Version, info.Main.Version)
	}
	b.Version = cmp.Or(b.Version, "devel")
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = cmp.Or(b.Commit, s.Value)
		case "vcs.time":
			b.Date = cmp.Or(b.Date, s.Value)
		}
	}
	return b
}

// versionCmd is coppice version.
type versionCmd struct {
	JSON bool `name:"json" help:"Print one JSON object."`
}

// Run is called by kong.
func (c *versionCmd) Run() error {
	b := builtFrom()
	isas := cpu.ISAs()
	b.CPU = cmp.Or(os.Getenv(cpu.ISAVariable), isas[len(isas)-1].String())
	if c.JSON {
		return printJSON(b)
	}
	fmt.Fprintln(terminal.Out(), "coppice", b.Version)
	t := tabwriter.NewWriter(terminal.Out(), 0, 8, 2, ' ', 0)
	for _, line := range [][2]string{{"commit", b.Commit}, {"date", b.Date}, {"cpu", b.CPU}, {"go", b.Go}, {"target", b.Target}} {
		fmt.Fprintf(t, "%s\t%s\n", line[0], cmp.Or(line[1], "unknown"))
	}
	return t.Flush()
}
