package main

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/coppice-llm/coppice/cmd/internal/complete"
	"github.com/coppice-llm/coppice/cmd/internal/manpage"
	"github.com/coppice-llm/coppice/engine/backends"
	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/internal/terminal"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
	"github.com/coppice-llm/coppice/scheduler"
)

// completionCmd is coppice completion: the script of a shell, or with words the answer that the script asks for.
type completionCmd struct {
	Shell string   `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
	Words []string `arg:"" optional:"" help:"Words of a command line without the program's name, to print the candidates for the last one. The scripts use this."`
}

// Run is called by kong.
func (c *completionCmd) Run(k *kong.Context) error {
	if len(c.Words) > 0 {
		fmt.Fprint(terminal.Out(), complete.Print(complete.Words(k.Model, c.Words, valuesFor)))
		return nil
	}
	text, err := complete.Script(c.Shell, k.Model.Name)
	if err == nil {
		fmt.Fprint(terminal.Out(), text)
	}
	return err
}

// valuesFor returns the values of a flag or argument that are known: names of policies and the like, and the models
// of the cache.
func valuesFor(v *kong.Value) (found []complete.Candidate) {
	var names []string
	switch v.Target.Type() {
	case reflect.TypeFor[modelPath]():
		names = cachedNames()
	case reflect.TypeFor[scheduler.Policy]():
		for _, p := range scheduler.Policies() {
			found = append(found, complete.Candidate{Word: p.String(), Help: p.About()})
		}
	case reflect.TypeFor[radixcache.Policy]():
		names = texts(radixcache.Policies(), radixcache.Policy.String)
	case reflect.TypeFor[kv.DType]():
		names = texts(cpu.KVTypes(), kv.DType.String)
	}
	switch {
	case v.Flag == nil && v.Name == "model" && len(names) == 0:
		names = cachedNames()
	case v.Name == "backend" && v.Enum == "":
		names = backends.Names()
	}
	for _, n := range names {
		found = append(found, complete.Candidate{Word: n})
	}
	return found
}

// cachedNames returns the names of the models in the cache.
func cachedNames() []string {
	h, err := openHub()
	if err != nil {
		return nil
	}
	defer h.Close()
	all, err := h.Models()
	if err != nil {
		return nil
	}
	var names []string
	for _, m := range all {
		names = append(names, m.Ref.String())
	}
	return names
}

// manCmd is coppice man.
type manCmd struct {
	Dir string `arg:"" type:"path" help:"Directory to write coppice.1 and a page for each command; it is made if missing."`
}

// Run is called by kong.
func (c *manCmd) Run(k *kong.Context) error {
	b := builtFrom()
	date, _, _ := strings.Cut(b.Date, "T")
	if err := manpage.Write(c.Dir, k.Model, manpage.About{Version: b.Version, Date: date, EnvPrefix: envPrefix}); err != nil {
		return fmt.Errorf("%w; name a directory that you may write to", err)
	}
	return nil
}
