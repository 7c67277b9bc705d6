package main

import (
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// module is a module that a binary has, or Go's standard library.
type module struct {
	path, version, sum string
	licence            string   // by SPDX's names
	texts              []string // of its licence and notices
}

// addModules adds the modules that are linked into a program.
func (r *release) addModules(program string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	for _, d := range info.Deps {
		if d.Replace != nil {
			d = d.Replace
		}
		if !slices.ContainsFunc(r.modules, func(m module) bool { return m.path == d.Path }) {
			r.modules = append(r.modules, module{path: d.Path, version: d.Version, sum: d.Sum})
		}
	}
	slices.SortFunc(r.modules, func(a, b module) int { return strings.Compare(a.path, b.path) })
	return nil
}

var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([-.].*)?$`)

// findLicences reads the licences of all modules. It fails if a module has none that is known, so that a person looks.
func (r *release) findLicences(ctx context.Context) error {
	list, err := output(ctx, r.source, "go", "list", "-mod=readonly", "-m", "-json", "all")
	if err != nil {
		return err
	}
	dirs := map[string]string{}
	for d := json.NewDecoder(strings.NewReader(list)); ; {
		var m struct{ Path, Dir string }
		if err := d.Decode(&m); err == io.EOF {
			break
		} else if err != nil {
			return err
		}
		dirs[m.Path] = m.Dir
	}
	goroot, err := output(ctx, r.source, "go", "env", "GOROOT")
	if err != nil {
		return err
	}
	dirs["std"] = goroot
	r.modules = append(r.modules, module{path: "std", version: strings.TrimPrefix(runtime.Version(), "go")})
	var faults []error
	for i := range r.modules {
		m := &r.modules[i]
		if err := m.read(dirs[m.path]); err != nil {
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}

// read reads the licence from a module's directory.
func (m *module) read(dir string) error {
	if dir == "" {
		return fmt.Errorf("module %s is not in the module cache", m.path)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() || !licenceFile.MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		m.texts = append(m.texts, strings.TrimSpace(strings.ReplaceAll(string(text), "\r\n", "\n")))
		if m.licence == "" {
			m.licence = licenceOf(string(text))
		}
	}
	if m.licence == "" {
		return fmt.Errorf("module %s %s has no licence that is known here: look at it, and add it to licenceOf", m.path, m.version)
	}
	return nil
}

// licenceOf returns SPDX's name of a licence that forbids nothing that a binary release does; "" for any other.
func licenceOf(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	has := func(s string) bool { return strings.Contains(strings.ToLower(text), strings.ToLower(s)) }
	switch {
	case has("Apache License Version 2.0"):
		return "Apache-2.0"
	case has("Mozilla Public License Version 2.0"), has("Mozilla Public License, version 2.0"):
		return "MPL-2.0"
	case has("Permission is hereby granted, free of charge"):
		return "MIT"
	case has("Redistribution and use in source and binary forms") && (has("Neither the name") || has("may not be used to endorse") || has("may be used to endorse")):
		return "BSD-3-Clause"
	case has("Redistribution and use in source and binary forms"):
		return "BSD-2-Clause"
	case has("Permission to use, copy, modify, and/or distribute this software"), has("Permission to use, copy, modify, and distribute this software for any"):
		return "ISC"
	case has("CC0 1.0 Universal"):
		return "CC0-1.0"
	}
	return ""
}

// licences returns the licence texts of all modules as one text. A text that several modules have stands once.
func (r *release) licences() []byte {
	users := map[string][]string{}
	for _, m := range r.modules {
		for _, t := range m.texts {
			users[t] = append(users[t], m.path+" "+m.version)
		}
	}
	var b strings.Builder
	b.WriteString("Coppice is linked with these modules. The text below each list is their licence or notice.\n")
	order := slices.SortedFunc(maps.Keys(users), func(x, y string) int { return strings.Compare(users[x][0]+x, users[y][0]+y) })
	for _, t := range order {
		fmt.Fprintf(&b, "\n%s\n%s\n%s\n\n%s\n", strings.Repeat("=", 80), strings.Join(users[t], "\n"), strings.Repeat("=", 80), t)
	}
	return []byte(b.String())
}
