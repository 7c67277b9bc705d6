package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/internal/terminal"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/stores"
)

// cacheCmd holds the commands of coppice cache.
type cacheCmd struct {
	Dump    cacheDumpCmd    `cmd:"" help:"Print the prefix tree of a running server: text, a graph, or JSON."`
	Explain cacheExplainCmd `cmd:"" help:"Ask a running server how much of a prompt is cached, and why not more."`
	Ls      cacheLsCmd      `cmd:"" help:"List the extents in a directory of KV."`
	Stat    cacheStatCmd    `cmd:"" help:"Print model, format and totals of a directory of KV, or the failures of a server's tiers."`
	Verify  cacheVerifyCmd  `cmd:"" help:"Read all KV in a directory and verify its checksums."`
	Prune   cachePruneCmd   `cmd:"" help:"Remove damaged and unreachable records, or all KV of one model."`
}

// cacheDir is the common argument of the cache commands.
type cacheDir struct {
	Dir  string `arg:"" type:"path" help:"Directory of --kv-disk or --kv-share, or one fingerprint's directory in it."`
	JSON bool   `name:"json" help:"Print JSON."`

	KVKey sealFile `name:"kv-key" placeholder:"FILE" help:"File of secrets, as of coppice serve, to open sealed KV."`
}

// find returns the directories of KV, one for each fingerprint. It fails if there is none.
func (c *cacheDir) find() ([]stores.Dir, error) {
	dirs, err := stores.Find(c.Dir, c.KVKey.sealer)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = fmt.Errorf("%s does not exist; give the directory that holds the KV, or one of the directories in it", c.Dir)
	case err == nil && len(dirs) == 0:
		err = fmt.Errorf("%s has no directories of KV: their names are fingerprints of 32 hexadecimal digits", c.Dir)
	}
	return dirs, err
}

// cacheLsCmd is coppice cache ls.
type cacheLsCmd struct{ cacheDir }

// extentLine is a line of coppice cache ls.
type extentLine struct {
	Fingerprint string       `json:"fingerprint"`
	Key         string       `json:"key"`
	Parent      string       `json:"parent,omitempty"`
	Start       int          `json:"start"`
	Tokens      int          `json:"tokens"`
	Bytes       int          `json:"bytes"`
	Namespace   kv.Namespace `json:"namespace"`
	Used        *time.Time   `json:"used,omitempty"`
	Error       string       `json:"error,omitempty"`
}

// Run is called by kong.
func (c *cacheLsCmd) Run() error {
	dirs, err := c.find()
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(terminal.Out(), 0, 0, 2, ' ', 0)
	enc := json.NewEncoder(terminal.Out())
	if !c.JSON {
		fmt.Fprintln(t, "KEY\tTOKENS\tBYTES\tNAMESPACE\tUSED\t")
	}
	for i := range dirs {
		d := &dirs[i]
		for r := range d.Records(false) {
			line := lineOf(d, &r)
			if c.JSON {
				if err := enc.Encode(line); err != nil {
					return err
				}
				continue
			}
			used := "-"
			if line.Used != nil {
				used = line.Used.Format(time.DateTime)
			}
			what := fmt.Sprintf("%.16s\t[%d, %d)\t%d\t%s\t%s\t%s", line.Key, line.Start, line.Start+line.Tokens, line.Bytes, spaceName(line.Namespace), used, line.Error)
			if line.Error != "" {
				what = fmt.Sprintf("%s at %d\t-\t-\t-\t%s\t%s", r.Path, r.At, used, line.Error)
			}
			fmt.Fprintln(t, what)
		}
		if d.Err != nil && !c.JSON {
			fmt.Fprintf(t, "%s\t-\t-\t-\t-\t%v\n", d.Path, d.Err)
		}
	}
	return t.Flush()
}

// lineOf describes a record. A damaged record has the error and no key.
func lineOf(d *stores.Dir, r *stores.Record) extentLine {
	l := extentLine{Fingerprint: d.Fingerprint, Start: r.Start, Tokens: len(r.Tokens), Bytes: r.PayloadBytes, Namespace: r.Namespace}
	if r.Err != nil {
		l.Error = r.Err.Error()
		return l
	}
	l.Key = r.Key.String()
	if !r.Parent.IsZero() {
		l.Parent = r.Parent.String()
	}
	if d.Kind == stores.Shared {
		l.Used = &r.Used
	}
	return l
}

// spaceName returns a namespace as one word.
func spaceName(ns kv.Namespace) string {
	var parts []string
	for _, p := range []struct{ name, value string }{{"model", ns.Model}, {"lora", ns.LoRA}, {"salt", ns.Salt}} {
		if p.value != "" {
			parts = append(parts, fmt.Sprintf("%s=%q", p.name, p.value))
		}
	}
	if len(parts) == 0 {
		return "public"
	}
	return strings.Join(parts, " ")
}

// dirStat is the report of stat and verify on a directory.
type dirStat struct {
	Path       string           `json:"path"`
	Kind       string           `json:"kind"`
	InUse      bool             `json:"in_use"`
	Keys       []string         `json:"keys,omitempty"` // ids of the secrets that seal its records
	Identity   mempool.Identity `json:"identity"`
	SizeBytes  int64            `json:"size_bytes,omitempty"` // as recorded in the directory
	Extents    int              `json:"extents"`
	Tokens     int              `json:"tokens"`
	Bytes      int64            `json:"bytes"`
	Namespaces int              `json:"namespaces"`
	Damaged    []string         `json:"damaged"`
	Foreign    []string         `json:"foreign"`    // of another model, type, version or key
	Unreadable []string         `json:"unreadable"` // the system reports an error; the record may be intact
	Error      string           `json:"error,omitempty"`
}

// statOf walks the records of a directory and sums them up. With payload it reads the pages
// and compares checksums.
func statOf(d *stores.Dir, payload bool) dirStat {
	s := dirStat{Path: d.Path, Kind: d.Kind, InUse: d.InUse, Keys: d.Keys, Identity: d.Identity, SizeBytes: d.SizeBytes, Damaged: []string{}, Foreign: []string{}, Unreadable: []string{}}
	spaces := map[kv.Namespace]bool{}
	for r := range d.Records(payload) {
		if r.Err != nil {
			list := &s.Unreadable
			switch {
			case errors.Is(r.Err, mempool.ErrForeign):
				list = &s.Foreign
			case r.Damaged():
				list = &s.Damaged
			}
			*list = append(*list, fmt.Sprintf("%s at %d: %v", r.Path, r.At, r.Err))
			continue
		}
		s.Extents++
		s.Tokens += len(r.Tokens)
		s.Bytes += int64(r.PayloadBytes)
		spaces[r.Namespace] = true
	}
	s.Namespaces = len(spaces)
	if d.Err != nil {
		s.Error = d.Err.Error()
	}
	return s
}

func (s *dirStat) print(w io.Writer, verified string) {
	fmt.Fprintln(w, s.Path)
	if s.Error != "" {
		fmt.Fprintf(w, "  can't be read: %s\n", s.Error)
		return
	}
	id := &s.Identity
	use := ""
	if s.SizeBytes > 0 {
		use = fmt.Sprintf(" of %d bytes", s.SizeBytes)
	}
	if s.InUse {
		use += ", in use by a process"
	}
	fmt.Fprintf(w, "  %s tier%s\n  model %s, numerics %s, KV %s, page layout %s\n", s.Kind, use, id.ModelID, id.NumericsID, id.KVType, id.PageLayout)
	if len(s.Keys) > 0 {
		fmt.Fprintf(w, "  sealed, key id %s\n", strings.Join(s.Keys, ", "))
	}
	fmt.Fprintf(w, "  pages of %d tokens and %d bytes, %d in an extent\n", id.Layout.PageTokens, id.Layout.PageBytes, id.Layout.ExtentPages)
	fmt.Fprintf(w, "  %d extents%s, %d tokens, %d bytes, %d namespaces, %d damaged, %d foreign, %d unreadable\n", s.Extents, verified, s.Tokens, s.Bytes, s.Namespaces,
		len(s.Damaged), len(s.Foreign), len(s.Unreadable))
	for _, list := range []struct {
		name  string
		lines []string
	}{{"damaged", s.Damaged}, {"foreign", s.Foreign}, {"unreadable", s.Unreadable}} {
		for _, line := range list.lines {
			fmt.Fprintf(w, "  %s: %s\n", list.name, line)
		}
	}
}

// stats prints the contents of each directory and returns them. With payload it also verifies the
// pages. The text verified is printed after the number of extents.
func (c *cacheDir) stats(payload bool, verified string) (all []dirStat, err error) {
	dirs, err := c.find()
	if err != nil {
		return nil, err
	}
	for i := range dirs {
		s := statOf(&dirs[i], payload)
		if all = append(all, s); !c.JSON {
			s.print(terminal.Out(), verified)
		}
	}
	if c.JSON {
		err = json.NewEncoder(terminal.Out()).Encode(all)
	}
	return all, err
}

// cacheVerifyCmd is coppice cache verify.
type cacheVerifyCmd struct{ cacheDir }

// Run is called by kong.
func (c *cacheVerifyCmd) Run() error {
	all, err := c.stats(true, " verified")
	if err != nil {
		return err
	}
	damaged, unreadable, closed := 0, 0, 0
	for i := range all {
		if all[i].Error != "" {
			closed++
		}
		damaged += len(all[i].Damaged)
		unreadable += len(all[i].Unreadable)
	}
	var faults bounds.Faults
	faults.If(closed > 0, "%d directories can't be read, for the reasons above", closed)
	faults.If(damaged > 0, "%d records are damaged; coppice cache prune removes them", damaged)
	faults.If(unreadable > 0, "%d records can't be read, for the reasons above; they may be intact", unreadable)
	return faults.Err()
}

// cachePruneCmd is coppice cache prune.
type cachePruneCmd struct {
	cacheDir
	Fingerprint []string `help:"Remove the whole directory with this fingerprint instead; coppice cache stat lists fingerprints. Repeat the flag for several."`
	DryRun      bool     `name:"dry-run" help:"Only print what would be removed."`
}

// pruned is the report of prune on a directory.
type pruned struct {
	Path      string `json:"path"`
	Removed   bool   `json:"removed"` // the whole directory
	Damaged   int    `json:"damaged"`
	Orphans   int    `json:"orphans"`
	Temporary int    `json:"temporary"`
	Error     string `json:"error,omitempty"`
}

// Run is called by kong.
func (c *cachePruneCmd) Run() error {
	dirs, err := c.find()
	if err != nil {
		return err
	}
	for _, f := range c.Fingerprint {
		if !slices.ContainsFunc(dirs, func(d stores.Dir) bool { return d.Fingerprint == f }) {
			return fmt.Errorf("%s has no directory with the fingerprint %s; coppice cache stat lists them", c.Dir, f)
		}
	}
	all := []pruned{}
	var errs []error
	for i := range dirs {
		d := &dirs[i]
		p := pruned{Path: d.Path}
		var err error
		switch {
		case len(c.Fingerprint) == 0:
			var n stores.Pruned
			n, err = d.Prune(c.DryRun)
			p.Damaged, p.Orphans, p.Temporary = n.Damaged, n.Orphans, n.Temporary
		case !slices.Contains(c.Fingerprint, d.Fingerprint):
			continue
		default:
			p.Removed = true
			if !c.DryRun {
				err = d.RemoveAll()
			}
		}
		if err != nil {
			p.Error = err.Error()
			errs = append(errs, err)
		}
		all = append(all, p)
		if !c.JSON {
			p.print(c.DryRun)
		}
	}
	if c.JSON {
		errs = append(errs, json.NewEncoder(terminal.Out()).Encode(all))
	}
	return errors.Join(errs...)
}

func (p *pruned) print(dry bool) {
	verb := "removed"
	if dry {
		verb = "would remove"
	}
	switch {
	case p.Error != "":
		fmt.Fprintf(terminal.Out(), "%s: unchanged: %s\n", p.Path, p.Error)
	case p.Removed:
		fmt.Fprintf(terminal.Out(), "%s: %s\n", p.Path, verb)
	default:
		fmt.Fprintf(terminal.Out(), "%s: %s %d damaged records, %d without a parent, %d temporary files\n",
			p.Path, verb, p.Damaged, p.Orphans, p.Temporary)
	}
}
