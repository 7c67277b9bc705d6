package hub

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// ErrChoice is wrapped if a reference matches several files.
var ErrChoice = errors.New("hub: which of several files?")

// file is a file of a repository.
type file struct {
	path string // slash-separated
	size int64
	hash string // hash of the contents, hexadecimal; "" for a file in the cache
	lfs  bool   // hash is SHA-256; otherwise git's SHA-1 of a blob
}

// choice is a model among the files of a repository: a GGUF file with its parts, or the files
// of a model directory.
type choice struct {
	name  string // path of the (first) GGUF file; "" for a directory
	files []file
}

func (c *choice) bytes() (n int64) {
	for _, f := range c.files {
		n += f.size
	}
	return n
}

// defaults are the quantisations that choose takes if none is requested, the best first: first 4
// bits per weight, which keep most of a model's quality at a quarter of its size, then more bits,
// then formats of one, two and four bytes.
var defaults = []string{"Q4_K_M", "Q4_K_S", "Q4_K", "Q4_0", "Q4_1", "IQ4_NL", "MXFP4", "MXFP4_MOE", "Q5_K_M", "Q5_K_S", "Q5_K", "Q5_0", "Q5_1", "Q6_K", "Q8_0", "BF16", "F16", "FP16", "F32"}

var quantForm = regexp.MustCompile(`(?i)(?:^|[-._/])(I?Q[0-9](?:_[0-9A-Z]+)*|TQ[0-9]_[0-9]|MXFP4(?:_MOE)?|BF16|FP?16|FP?32)(?:[-./]|$)`)

// Quantisation returns the quantisation in a file's name, in capitals, such as "Q4_K_M"; "" if
// there is none.
func Quantisation(name string) string {
	rest := strings.TrimSuffix(partForm.ReplaceAllString(name, "$1"), ".gguf")
	found := ""
	for {
		at := quantForm.FindStringSubmatchIndex(rest)
		if at == nil {
			return strings.ToUpper(found)
		}
		found, rest = rest[at[2]:at[3]], rest[at[3]:]
	}
}

// choose picks the model that pattern selects; see match. Without a pattern it prefers GGUF to a
// directory, and among GGUF files the first of defaults. The error wraps ErrMissing if no file
// fits, or ErrChoice if several do.
func choose(files []file, pattern string) (*choice, error) {
	all, broken := choices(files)
	if len(all) == 0 {
		return nil, errors.Join(fmt.Errorf("%w: it has no GGUF file, and no config.json with tokenizer.json and safetensors", ErrMissing), broken)
	}
	ggufs := slices.DeleteFunc(slices.Clone(all), func(c *choice) bool { return c.name == "" })
	if pattern != "" {
		return match(ggufs, pattern, broken)
	}
	if len(ggufs) == 0 {
		return all[0], nil
	}
	for _, quant := range defaults {
		for _, c := range ggufs {
			if Quantisation(c.name) == quant {
				return c, nil
			}
		}
	}
	if len(ggufs) == 1 {
		return ggufs[0], nil
	}
	return nil, fmt.Errorf("%w: none is of a usual kind; name one of %s", ErrChoice, names(ggufs))
}

// match finds the one model of all that pattern selects. It compares pattern in turn with the
// path, the quantisation and the file name, uses it as a pattern of path.Match, and searches for
// it in the name. The first of these rules with any match decides. It fails if that rule has
// several matches, or if no rule has one; broken is added to the latter error.
func match(all []*choice, pattern string, broken error) (*choice, error) {
	lower := strings.ToLower(pattern)
	for _, rule := range []func(c *choice) bool{
		func(c *choice) bool {
			return slices.ContainsFunc(c.files, func(f file) bool { return f.path == pattern })
		},
		func(c *choice) bool { return strings.EqualFold(Quantisation(c.name), pattern) },
		func(c *choice) bool {
			base := strings.ToLower(path.Base(c.name))
			return base == lower || base == lower+".gguf"
		},
		func(c *choice) bool {
			whole, _ := path.Match(lower, strings.ToLower(c.name))
			base, _ := path.Match(lower, strings.ToLower(path.Base(c.name)))
			return whole || base
		},
		func(c *choice) bool { return strings.Contains(strings.ToLower(c.name), lower) },
	} {
		switch found := slices.DeleteFunc(slices.Clone(all), func(c *choice) bool { return !rule(c) }); {
		case len(found) == 1:
			return found[0], nil
		case len(found) > 1:
			return nil, fmt.Errorf("%w: %q may be %s", ErrChoice, pattern, names(found))
		}
	}
	if len(all) == 0 {
		return nil, errors.Join(fmt.Errorf("%w: it has no GGUF file for %q to be", ErrMissing, pattern), broken)
	}
	return nil, errors.Join(fmt.Errorf("%w: no file is %q; there is %s", ErrMissing, pattern, names(all)), broken)
}

// names lists files for a message.
func names(all []*choice) string {
	var out []string
	for _, c := range all {
		if len(out) == 16 {
			out = append(out, fmt.Sprintf("and %d more", len(all)-16))
			break
		}
		out = append(out, c.name)
	}
	return strings.Join(out, ", ")
}

// choices returns the complete models among files. The error lists what the incomplete models
// lack.
func choices(files []file) (all []*choice, err error) {
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.path, b.path) })
	if dir := directory(files); dir != nil {
		all = append(all, dir)
	}
	var errs []error
	for i := range files {
		f := &files[i]
		base := strings.ToLower(path.Base(f.path))
		if path.Ext(base) != ".gguf" || strings.Contains(base, "mmproj") || strings.Contains(base, "imatrix") {
			continue
		}
		part := partForm.FindStringSubmatch(f.path)
		if part == nil {
			all = append(all, &choice{f.path, files[i : i+1]})
			continue
		}
		if part[2] != "00001" {
			continue // counted with its first part, or incomplete
		}
		parts, err := partsOf(files, f)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all = append(all, &choice{f.path, parts})
	}
	return all, errors.Join(errs...)
}

// partForm matches the names of split files: NAME-00001-of-00003.gguf.
var partForm = regexp.MustCompile(`^(.*)-([0-9]{5})-of-([0-9]{5})\.(gguf|safetensors)$`)

// partsOf returns all parts, in order, of the split file whose first part is f. files must be
// sorted by path. It fails if a part is missing.
func partsOf(files []file, f *file) ([]file, error) {
	name := partForm.FindStringSubmatch(f.path)
	var parts []file
	for _, other := range files {
		m := partForm.FindStringSubmatch(other.path)
		if m != nil && m[1] == name[1] && m[3] == name[3] && m[4] == name[4] && m[2] == fmt.Sprintf("%05d", len(parts)+1) {
			parts = append(parts, other)
		}
	}
	if want := strings.TrimLeft(name[3], "0"); want != fmt.Sprint(len(parts)) {
		return nil, fmt.Errorf("%w: %s: part %d of %s is not there", ErrMissing, f.path, len(parts)+1, want)
	}
	return parts, nil
}

// words are the files of a model directory other than its weights.
var words = []string{"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}

// directory returns the files that Open of a directory reads; nil if something is missing.
func directory(files []file) *choice {
	c := &choice{}
	has := map[string]bool{}
	var single, index, first *file
	for i := range files {
		f := &files[i]
		part := partForm.FindStringSubmatch(f.path)
		switch {
		case slices.Contains(words, f.path) || path.Dir(f.path) == "additional_chat_templates" && path.Ext(f.path) == ".jinja":
			c.files, has[f.path] = append(c.files, *f), true
		case f.path == "model.safetensors":
			single = f
		case f.path == "model.safetensors.index.json":
			index = f
		case part != nil && part[1] == "model" && part[2] == "00001" && part[4] == "safetensors":
			first = f
		}
	}
	if !has["config.json"] || !has["tokenizer.json"] {
		return nil
	}
	if single != nil {
		c.files = append(c.files, *single)
		return c
	}
	if index == nil || first == nil {
		return nil
	}
	parts, err := partsOf(files, first)
	if err != nil {
		return nil
	}
	c.files = append(append(c.files, *index), parts...)
	return c
}
