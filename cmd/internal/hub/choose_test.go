package hub

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestChoose(t *testing.T) {
	many := []string{"README.md", "m-Q2_K.gguf", "m-Q4_K_M.gguf", "m-Q4_K_S.gguf", "m-Q8_0.gguf", "m-f16.gguf", "m-mmproj-f16.gguf", "m.imatrix.gguf"}
	split := []string{"Q8_0/m-Q8_0-00001-of-00002.gguf", "Q8_0/m-Q8_0-00002-of-00002.gguf", "Q4_0/m-Q4_0-00001-of-00003.gguf", "Q4_0/m-Q4_0-00002-of-00003.gguf"}
	dir := []string{"config.json", "tokenizer.json", "model.safetensors", "vocab.txt", "sub/config.json"}
	for _, tc := range []struct {
		files         []string
		pattern, want string // the first file
		n             int
		kind          error
	}{
		{many, "", "m-Q4_K_M.gguf", 1, nil},
		{many, "q8_0", "m-Q8_0.gguf", 1, nil},
		{many, "F16", "m-f16.gguf", 1, nil},
		{many, "m-Q2_K.gguf", "m-Q2_K.gguf", 1, nil},
		{many, "m-q2_k", "m-Q2_K.gguf", 1, nil},
		{many, "*-q8*", "m-Q8_0.gguf", 1, nil},
		{many, "K_S", "m-Q4_K_S.gguf", 1, nil},
		{many, "Q4", "m-Q4_K_M.gguf, m-Q4_K_S.gguf", 0, ErrChoice},
		{many, "Q3_K", "there is m-Q2_K.gguf", 0, ErrMissing},
		{[]string{"a.gguf", "b.gguf"}, "", "a.gguf, b.gguf", 0, ErrChoice},
		{[]string{"a.gguf"}, "", "a.gguf", 1, nil},
		{[]string{"SmolLM2.Q4_1.gguf"}, "Q4_1", "SmolLM2.Q4_1.gguf", 1, nil},
		{split, "", "Q8_0/m-Q8_0-00001-of-00002.gguf", 2, nil},
		{split, "Q8_0", "Q8_0/m-Q8_0-00001-of-00002.gguf", 2, nil},
		{split, "Q8_0/m-Q8_0-00002-of-00002.gguf", "Q8_0/m-Q8_0-00001-of-00002.gguf", 2, nil},
		{split, "Q4_0", "part 3 of 3 is not there", 0, ErrMissing},
		{dir, "", "", 3, nil},
		{dir, "Q4_0", "no GGUF file", 0, ErrMissing},
		{append(dir, "m-Q4_0.gguf"), "", "m-Q4_0.gguf", 1, nil},
		{dir[1:], "", "it has no GGUF file", 0, ErrMissing},
		{nil, "", "it has no GGUF file", 0, ErrMissing},
	} {
		var files []file
		for _, path := range tc.files {
			files = append(files, file{path: path, size: 1})
		}
		c, err := choose(files, tc.pattern)
		switch {
		case tc.kind != nil:
			if !errors.Is(err, tc.kind) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, %q: %v, want %v with %q", tc.files, tc.pattern, err, tc.kind, tc.want)
			}
		case err != nil || c.name != tc.want || len(c.files) != tc.n:
			t.Errorf("%v, %q: %+v, %v, want %q of %d", tc.files, tc.pattern, c, err, tc.want, tc.n)
		}
	}
}

func TestQuantisation(t *testing.T) {
	for name, want := range map[string]string{
		"SmolLM2-135M-Instruct.Q4_1.gguf": "Q4_1", "m-q4_k_m.gguf": "Q4_K_M", "UD-Q4_K_XL/m-UD-Q4_K_XL-00001-of-00002.gguf": "Q4_K_XL", "m-IQ4_NL.gguf": "IQ4_NL",
		"m-MXFP4_MOE.gguf": "MXFP4_MOE", "m-BF16.gguf": "BF16", "Qwen2.5-0.5B.gguf": "", "q8_0.gguf": "Q8_0", "m-fp16.gguf": "FP16", "m_Q4_0.gguf": "Q4_0",
	} {
		if got := Quantisation(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestParseRef(t *testing.T) {
	const at = "https://hub.example"
	for s, want := range map[string]string{
		"owner/name": "hf:owner/name", "hf:owner/name": "hf:owner/name", "hf:owner/name:Q4_K_M": "hf:owner/name:Q4_K_M", "owner/name@v1:a/b.gguf": "hf:owner/name@v1:a/b.gguf",
		at + "/owner/name": "hf:owner/name", at + "/owner/name/": "hf:owner/name", at + "/owner/name/tree/dev": "hf:owner/name@dev",
		at + "/owner/name/resolve/main/a%20b.gguf?download=true": "hf:owner/name:a b.gguf", at + "/owner/name/blob/v2/x/y.gguf": "hf:owner/name@v2:x/y.gguf",
	} {
		if r, err := ParseRef(s, at); err != nil || r.String() != want {
			t.Errorf("%s: %v, %v", s, r, err)
		}
	}
	for _, s := range []string{"", "name", "hf:name", "a/b/c", "../x", "a/..", "a/b--c", "owner/name:", "owner/name@", "owner/name@../x", "hf:/etc", "https://other.example/owner/name", at + "/owner",
		at + "/owner/name/raw", at + "/owner/%2e%2e", "owner/na me", "-a/b", "a/b.git"} {
		if r, err := ParseRef(s, at); !errors.Is(err, ErrRef) {
			t.Errorf("%q: %+v, %v", s, r, err)
		}
	}
}

func TestConfig(t *testing.T) {
	if err := (Config{Dir: "x"}).WithDefaults().Validate(); err != nil {
		t.Error(err)
	}
	err := Config{Endpoint: "ftp://me:secret@x", Token: "a\nb", Attempts: -1, Wait: -1}.WithDefaults().Validate()
	for _, want := range []string{"Dir", "Endpoint", "Token", "Attempts", "Wait"} {
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestModelsOfOthers: models pulled by Hugging Face's own tools are found; damaged and
// unrelated entries are skipped.
func TestModelsOfOthers(t *testing.T) {
	dir := t.TempDir()
	put := func(path, text string) {
		t.Helper()
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("models--a--b/refs/main", testCommit)
	put("models--a--b/refs/pr/1", testCommit)
	put("models--a--b/snapshots/"+testCommit+"/x-Q8_0.gguf", "GGUF")
	put("models--a--c/refs/main", "no commit")
	put("models--a--d/refs/main", testCommit)
	put("models--a--e/refs/main", testCommit)
	put("models--a--e/snapshots/"+testCommit+"/config.json", "{}")
	put("datasets--a--b/refs/main", testCommit)
	put("version.txt", "1")
	if err := os.Symlink("../../blobs/gone", filepath.Join(dir, "models--a--b/snapshots", testCommit, "y-Q4_K_M.gguf")); err != nil {
		t.Skip(err)
	}
	h, err := New(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	all, err := h.Models()
	if err != nil || len(all) != 2 || all[0].Ref.String() != "hf:a/b:x-Q8_0.gguf" || all[1].Ref.String() != "hf:a/b@pr/1:x-Q8_0.gguf" {
		t.Errorf("%v: %+v", err, all)
	}
	if m, err := h.Find(Ref{"a/b", testCommit, ""}); err != nil || filepath.Base(m.Path) != "x-Q8_0.gguf" {
		t.Errorf("by commit: %v %v", m, err)
	}
	if h, err = New(Config{Dir: filepath.Join(dir, "none")}); err != nil {
		t.Fatal(err)
	}
	if all, err := h.Models(); err != nil || all != nil {
		t.Errorf("no directory: %v %v", all, err)
	}
}
