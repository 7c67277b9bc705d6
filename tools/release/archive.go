package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// entry is a file or, with a slash at the end of its name, a directory.
type entry struct {
	name     string
	mode     int64
	data     []byte
	uid, gid int
}

// archives writes a tar or zip file for each platform, with the command at its root.
func (r *release) archives(context.Context) error {
	for _, p := range r.platforms {
		data, err := os.ReadFile(r.binaries[p])
		if err != nil {
			return err
		}
		name := "coppice_" + strings.ReplaceAll(p, "/", "_")
		windows := strings.HasPrefix(p, "windows/")
		program := entry{name: "coppice", mode: 0o755, data: data}
		if windows {
			program.name += ".exe"
		}
		entries := []entry{program}
		for _, f := range slices.Sorted(maps.Keys(r.files)) {
			if windows && (strings.HasPrefix(f, "man/") || strings.HasPrefix(f, "completions/") || strings.HasPrefix(f, "coppice.s")) {
				continue // of no use there
			}
			entries = append(entries, entry{name: f, mode: 0o644, data: r.files[f]})
		}
		if windows {
			text, err := zipped(entries, r.time)
			if err == nil {
				err = r.write(name+".zip", text)
			}
			if err != nil {
				return err
			}
			continue
		}
		text, err := tarred(entries, r.time, true)
		if err == nil {
			err = r.write(name+".tar.gz", text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// tarred returns a tar file, compressed or not, whose entries have this time.
func tarred(entries []entry, at time.Time, compress bool) ([]byte, error) {
	var b bytes.Buffer
	var to io.Writer = &b
	z := gzip.NewWriter(&b)
	if compress {
		to = z
	}
	t := tar.NewWriter(to)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.data)), ModTime: at, Uid: e.uid, Gid: e.gid, Format: tar.FormatUSTAR, Typeflag: tar.TypeReg}
		if e.uid == 0 {
			h.Uname, h.Gname = "root", "root"
		}
		if strings.HasSuffix(e.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := t.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := t.Write(e.data); err != nil {
			return nil, err
		}
	}
	if err := t.Close(); err != nil {
		return nil, err
	}
	if compress {
		if err := z.Close(); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

func zipped(entries []entry, at time.Time) ([]byte, error) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate, Modified: at}
		h.SetMode(os.FileMode(e.mode))
		w, err := z.CreateHeader(h)
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(e.data); err != nil {
			return nil, err
		}
	}
	err := z.Close()
	return b.Bytes(), err
}
