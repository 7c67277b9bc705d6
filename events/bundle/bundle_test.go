package bundle

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestThereAndBack(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "model [a-z]*?"), t.TempDir() // the name has the special characters of patterns
	want := map[string]string{"tokenizer.json": "{}", "chat_template.jinja": "{{ x }}", "additional_chat_templates/rag.jinja": "y"}
	write(t, from, want)
	write(t, from, map[string]string{"model.safetensors": "weights", "tokenizer.json.bak": "no"})
	b, err := Read(from)
	if err != nil {
		t.Fatal(err)
	}
	same, err := Of(bytes.Clone(b.Data))
	if err != nil || same.Digest != b.Digest || len(b.Digest) != 32 {
		t.Fatal(same, err)
	}
	if err := same.Unpack(to); err != nil {
		t.Fatal(err)
	}
	n := 0
	filepath.Walk(to, func(p string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		n++
		name, _ := filepath.Rel(to, p)
		if text, err := os.ReadFile(p); err != nil || string(text) != want[filepath.ToSlash(name)] {
			t.Errorf("%s is %q, %v", name, text, err)
		}
		return nil
	})
	if n != len(want) {
		t.Errorf("%d files, want %d", n, len(want))
	}
	write(t, from, map[string]string{"chat_template.jinja": "{{ z }}"})
	if other, err := Read(from); err != nil || other.Digest == b.Digest {
		t.Error("another template, and the same digest", err)
	}
	if _, err := Read(to + "/additional_chat_templates"); !errors.Is(err, os.ErrNotExist) {
		t.Error("a directory without a tokenizer gives", err)
	}
}

// sparse returns an archive of 1.5 KiB with a file of 256 MiB that has no data, only gaps,
// written like GNU tar in PAX format 0.1.
func sparse(t *testing.T) []byte {
	records := ""
	for _, kv := range [][2]string{{"GNU.sparse.major", "0"}, {"GNU.sparse.minor", "1"}, {"GNU.sparse.name", "tokenizer.json"},
		{"GNU.sparse.size", "268435456"}, {"GNU.sparse.numblocks", "1"}, {"GNU.sparse.map", "268435456,0"}} {
		line := " " + kv[0] + "=" + kv[1] + "\n"
		n := len(line) + 2
		records += strconv.Itoa(n) + line
		if len(strconv.Itoa(n))+len(line) != n {
			t.Fatal("the length of a record has two digits")
		}
	}
	block := func(name string, size int, flag byte) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		if err := w.WriteHeader(&tar.Header{Name: name, Size: int64(size), Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}); err != nil {
			t.Fatal(err)
		}
		h := b.Bytes()[:512]
		h[156] = flag
		sum := 0
		copy(h[148:156], "        ")
		for _, c := range h {
			sum += int(c)
		}
		copy(h[148:156], fmt.Sprintf("%06o\x00 ", sum))
		return h
	}
	out := append(block("pax", len(records), 'x'), records...)
	out = append(out, make([]byte, 512-len(records)%512)...)
	out = append(out, block("tokenizer.json", 0, '0')...)
	return append(out, make([]byte, 1024)...)
}

func TestHostile(t *testing.T) {
	pack := func(headers ...tar.Header) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range headers {
			if h.Typeflag == 0 {
				h.Typeflag = tar.TypeReg
			}
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
			w.Write(make([]byte, h.Size))
		}
		w.Close()
		return b.Bytes()
	}
	many := make([]tar.Header, maxFiles+1)
	for i := range many {
		many[i].Name = "tokenizer.json"
	}
	for name, data := range map[string][]byte{
		"empty":     nil,
		"noise":     bytes.Repeat([]byte{7}, 2048),
		"upwards":   pack(tar.Header{Name: "../tokenizer.json"}),
		"absolute":  pack(tar.Header{Name: "/etc/passwd"}),
		"deep":      pack(tar.Header{Name: templates + "/../../x.jinja"}),
		"link":      pack(tar.Header{Name: "tokenizer.json", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}),
		"other":     pack(tar.Header{Name: "tokenizer.json"}, tar.Header{Name: "run.sh"}),
		"no tokens": pack(tar.Header{Name: "tokenizer_config.json"}),
		"many":      pack(many...),
		"twice":     pack(tar.Header{Name: "tokenizer.json"}, tar.Header{Name: "tokenizer.json"}),
		"holes":     sparse(t),
		"cut":       pack(tar.Header{Name: "tokenizer.json", Size: 5000})[:1024],
	} {
		if b, err := Of(data); !errors.Is(err, ErrInvalid) {
			// Truncation within a file is only detected by Unpack.
			if name != "cut" || !errors.Is(b.Unpack(t.TempDir()), ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if strings.Contains(templates, "/") {
		t.Error("allowed looks at one folder")
	}
}
