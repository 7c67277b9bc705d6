package figures

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Names configures the names of metrics.
type Names struct {
	Prefix  string
	Labels  prometheus.Labels // of every metric
	Aliases map[string]string // prefix of each enabled set of aliases
}

// field is one field of a struct of figures.
type field struct {
	index  int    // position in its struct
	api    string // "": not in Flat
	metric string // "": no metric
	help   string
	why    string
	alias  string
	by     string
	fixed  [2][]string // names and values of the constant labels
	label  bool
	inner  []field // fields of a struct, or of the elements of a list
	list   bool
	keyed  bool // it is a map
	descs  []*prometheus.Desc
}

// parse reads the tags of a struct. It panics if they are wrong.
func parse(t reflect.Type) []field {
	var all []field
	for i := range t.NumField() {
		sf := t.Field(i)
		if !sf.IsExported() {
			continue
		}
		tag := sf.Tag
		named, _, _ := strings.Cut(tag.Get("json"), ",")
		f := field{
			index: i, api: unlessDash(cmp.Or(tag.Get("api"), named)), metric: unlessDash(tag.Get("metric")), help: tag.Get("help"), why: tag.Get("why"),
			alias: tag.Get("alias"), by: tag.Get("by"), label: tag.Get("label") != "", keyed: sf.Type.Kind() == reflect.Map,
		}
		for pair := range strings.SplitSeq(tag.Get("labels"), ",") {
			if name, value, ok := strings.Cut(pair, "="); ok {
				f.fixed[0], f.fixed[1] = append(f.fixed[0], name), append(f.fixed[1], value)
			}
		}
		in := sf.Type
		if f.list = in.Kind() == reflect.Slice; f.list || in.Kind() == reflect.Pointer {
			in = in.Elem()
		}
		out := f.metric == "" && f.api == "" && f.why != ""
		if in.Kind() == reflect.Struct && !out {
			f.inner = parse(in)
		}
		if n := len(all); f.help == "" && n > 0 && f.metric != "" && all[n-1].metric == f.metric {
			f.help = all[n-1].help // several fields of one metric
		}
		leaf := f.inner == nil && !f.label
		if leaf && (f.metric == "") != (f.help == "") || leaf && (f.metric == "" || f.api == "" && tag.Get("api") != "") && f.why == "" {
			panic(fmt.Sprintf("figures: %s.%s: want metric and help, or why there is none", t, sf.Name))
		}
		all = append(all, f)
	}
	return all
}

// unlessDash returns the value of a tag; "-" means none.
func unlessDash(name string) string {
	if name == "-" {
		return ""
	}
	return name
}

// describe makes the Prometheus descriptions of all metrics in fields. by holds the labels of the
// lists that the fields are in, outermost first.
func (n *Names) describe(fields []field, by []string) {
	for i := range fields {
		f := &fields[i]
		switch {
		case f.inner != nil:
			inner := by
			if f.list {
				inner = append(by[:len(by):len(by)], f.by)
			}
			n.describe(f.inner, inner)
		case f.metric != "":
			labels := by
			if f.by != "" && !f.keyed { // its own label instead of the list's
				labels = by[:len(by)-1]
			}
			if f.by != "" {
				labels = append(labels[:len(labels):len(labels)], f.by)
			}
			labels = slices.Concat(f.fixed[0], labels)
			f.descs = []*prometheus.Desc{prometheus.NewDesc(n.Prefix+f.metric, f.help, labels, n.Labels)}
			if prefix := n.Aliases[f.alias]; prefix != "" {
				f.descs = append(f.descs, prometheus.NewDesc(prefix+f.metric, f.help, labels, n.Labels))
			}
		}
	}
}
