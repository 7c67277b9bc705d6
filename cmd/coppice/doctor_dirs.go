package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// lookAtDir describes the directory d.Path, of which it changes nothing where the system can say
// what this user may do.
func lookAtDir(d dirFacts) dirFacts {
	d.Free = -1
	if d.Err != nil {
		return d
	}
	at, err := closest(d.Path)
	if err == nil && d.Use == forModels {
		err = opensHub()
	}
	if err != nil {
		d.Err = err
		return d
	}
	d.Missing = at != d.Path
	d.Write, d.Free = writable(at), freeBytes(at)
	if d.Missing {
		return d
	}
	if d.Err = readable(at); d.Err != nil || d.Use == forTemp {
		return d // the temporary directory holds files of others
	}
	ctx, cancel := context.WithTimeout(context.Background(), sizeWait)
	defer cancel()
	d.Bytes, d.Partial = sizeOf(ctx, d.Path)
	return d
}

// opensHub returns why the hub can't be used, with its token and the address in its variables.
func opensHub() error {
	h, err := openHub()
	if err == nil {
		h.Close()
	}
	return err
}

// closest returns path if it is a directory, or the closest directory above it if nothing is there.
// The error names the obstacle.
func closest(path string) (string, error) {
	for at := path; ; at = filepath.Dir(at) {
		st, err := os.Stat(at)
		switch {
		case err == nil && st.IsDir():
			return at, nil
		case err == nil:
			return "", fmt.Errorf("%s is not a directory", at)
		case !errors.Is(err, fs.ErrNotExist) || at == filepath.Dir(at):
			return "", err
		}
		if _, err := os.Lstat(at); err == nil {
			return "", fmt.Errorf("%s is a link to a place that does not exist", at)
		}
	}
}

// readable returns why the directory can't be listed.
func readable(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err = f.ReadDir(1); errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// sizeOf adds up the sizes of the files below dir, without following links, until ctx ends. partial
// says that it could not count all. A directory is read in parts, as it may have millions of entries.
func sizeOf(ctx context.Context, dir string) (bytes int64, partial bool) {
	for todo := []string{dir}; len(todo) > 0; {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		f, err := os.Open(at)
		if err != nil {
			partial = true
			continue
		}
		for err == nil {
			var entries []fs.DirEntry
			entries, err = f.ReadDir(256)
			for _, e := range entries {
				if ctx.Err() != nil {
					f.Close()
					return bytes, true
				}
				if e.IsDir() {
					todo = append(todo, filepath.Join(at, e.Name()))
				} else if st, err := e.Info(); err == nil && st.Mode().IsRegular() {
					bytes += st.Size()
				}
			}
		}
		partial = partial || !errors.Is(err, io.EOF)
		f.Close()
	}
	return bytes, partial
}

// otherCache is the advice for a cache of models that can't be used.
const otherCache = "set HF_HOME to another directory"

// judge returns the finding on a directory. real says that serve has a model of the cache, and so
// writes no generated one into the temporary directory.
func (d *dirFacts) judge(real bool) finding {
	bad, problem, other := warns, "serve and pull can't use it for models", otherCache
	switch {
	case d.Use == forTier:
		bad, problem, other = fails, "serve can't keep KV there", "give --"+d.Check+" another directory"
	case d.Use == forTemp:
		problem, other = "commands can't write generated models", "set "+tempVariable()+" to another directory"
		if !real {
			bad = fails
		}
	}
	do := "make it readable and writable for this user, or " + other
	switch {
	case d.Silent:
		return noted(d.Check, "%s: no answer from its file system", d.Path).but(bad, problem, "check how it is mounted, or "+other)
	case d.Path == "":
		return noted(d.Check, "%s", withoutName(d.Err)).but(bad, problem, other)
	case d.Err != nil:
		return noted(d.Check, "%s: %s", d.Path, errIn(d.Err)).but(bad, problem, do)
	case d.Missing && d.Use == forTemp:
		return noted(d.Check, "%s is missing", d.Path).but(bad, problem, "make it, or "+other)
	}
	text := d.describe()
	switch {
	case d.Write != nil && d.Use == forModels: // serve reads models of a cache that it can't write
		return noted(d.Check, "%s; %s", text, errIn(d.Write)).but(warns, "coppice pull can't store models there", do)
	case d.Write != nil:
		return noted(d.Check, "%s; %s", text, errIn(d.Write)).but(bad, problem, do)
	case d.Free < 0:
	case d.Use == forModels && d.Free < leastModels:
		return noted(d.Check, "%s", text).but(warns, "little room for models", "free some, or set HF_HOME to a larger file system")
	case d.Use == forTemp && d.Free < d.Want:
		return noted(d.Check, "%s", text).but(bad, "commands need up to "+decimalBytes(d.Want), "free some, or "+other)
	case d.Use == forTier && d.Bytes+d.Free < d.Want:
		return noted(d.Check, "%s", text).but(warns, "the file system can't hold "+decimalBytes(d.Want), "free some, or give --"+d.Check+" a smaller size")
	}
	return noted(d.Check, "%s", text)
}

// describe returns path, contents and room of a directory that can be read.
func (d *dirFacts) describe() string {
	text := d.Path
	switch {
	case d.Missing:
		text += " (not made yet)"
	case d.Use == forTemp:
	case d.Partial:
		text += ": at least " + decimalBytes(d.Bytes)
	case d.Bytes == 0:
		text += ": empty"
	default:
		text += ": " + decimalBytes(d.Bytes)
	}
	if d.Free >= 0 {
		text += ", " + decimalBytes(d.Free) + " free"
	}
	return text
}

// tempVariable returns the variable that names the directory of temporary files.
func tempVariable() string {
	if runtime.GOOS == "windows" {
		return "TMP"
	}
	return "TMPDIR"
}
