package main

import (
	"os"
	"slices"

	"github.com/alecthomas/kong"
)

// environment sets the flags of commands that are not on the command line from COPPICE_… variables.
// serve and route do it by settings, which also read a file and keep the source of each value.
type environment struct{}

// Validate is called by kong.
func (environment) Validate(*kong.Application) error { return nil }

// Resolve is called by kong for each flag that is not on the command line.
func (environment) Resolve(ctx *kong.Context, _ *kong.Path, f *kong.Flag) (any, error) {
	name := envName(f.Name)
	if node := ctx.Selected(); node == nil || hasSettings(node) || notSettings(f.Name) || slices.Contains(foreignEnv, name) {
		return nil, nil
	}
	if v, ok := os.LookupEnv(name); ok {
		return v, nil
	}
	return nil, nil
}

// hasSettings reports whether a command reads --config.
func hasSettings(n *kong.Node) bool {
	return slices.ContainsFunc(n.Flags, func(f *kong.Flag) bool { return f.Name == "config" })
}

// notSettings reports whether a flag asks for a text instead of choosing how a command works.
func notSettings(flag string) bool { return flag == "help" || flag == "version" }

// didYouMean returns the end of a message that names the nearest of names, such as `, did you mean "addr"?`; "" if none is near.
func didYouMean(name string, names []string) string {
	if n := nearest(name, names); n != "" {
		return ", did you mean \"" + n + "\"?"
	}
	return ""
}

// nearest returns the name with the fewest edits from name, the first of equals; "" if that are more than a third
// of its letters and more than two.
func nearest(name string, names []string) string {
	best, fewest := "", max(2, len(name)/3)+1
	for _, n := range names {
		if d := edits(name, n); d < fewest {
			best, fewest = n, d
		}
	}
	return best
}

// edits returns how many insertions, removals and replacements of bytes make b of a (Levenshtein 1966).
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0] // of the row above, one to the left
		row[0] = i + 1
		for j := range len(b) {
			cost := before
			if a[i] != b[j] {
				cost++
			}
			before = row[j+1]
			row[j+1] = min(cost, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
