package tokenizer

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

var update = flag.Bool("update", false, "rewrite the table of docs/tokenizers.md")

// asIsTable has the table of TestShippedTokenizers; -update rewrites it.
const asIsTable = "../docs/tokenizers.md"

// TestShippedTokenizers loads the tokenizers that tools/tokenizers/install.py has put into
// the directory COPPICE_TOKENIZERS, and compares them with Hugging Face's library. The table in
// docs/tokenizers.md must equal the results.
func TestShippedTokenizers(t *testing.T) {
	dir := os.Getenv("COPPICE_TOKENIZERS")
	if dir == "" {
		t.Skip("COPPICE_TOKENIZERS names no directory; tools/tokenizers/install.py fills one")
	}
	raw, err := os.ReadFile("testdata/texts.json")
	if err != nil {
		t.Fatal(err)
	}
	var texts []asIsText
	if err := json.Unmarshal(raw, &texts); err != nil || len(texts) < 200 {
		t.Fatalf("testdata/texts.json: %v, %d texts", err, len(texts))
	}
	sum := sha256.Sum256(raw)
	paths, err := filepath.Glob(filepath.Join(dir, "*", "tokenizer.json"))
	if err != nil || len(paths) < 15 {
		t.Fatalf("%s holds %d tokenizers (%v)", dir, len(paths), err)
	}
	doc, err := os.ReadFile(asIsTable)
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, path := range paths {
		if row := asIs(t, path, texts, hex.EncodeToString(sum[:])); row != "" {
			rows = append(rows, row)
		}
	}
	before, after := tableIn(t, string(doc))
	text := before + strings.Join(rows, "\n") + after
	if *update {
		if err := os.WriteFile(asIsTable, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if text != string(doc) {
		t.Errorf("%s says otherwise; run with -update and look at the difference:\n%s", asIsTable, strings.Join(rows, "\n"))
	}
}

type asIsText struct{ Kind, Text string }

// asIs returns the table row of the tokenizer at path. It compares the encodings of texts with
// those that Hugging Face's library gave, in the file ids.json next to path. sum is the SHA-256
// of the texts.
func asIs(t *testing.T, path string, texts []asIsText, sum string) string {
	t.Helper()
	name := filepath.Base(filepath.Dir(path))
	var want struct {
		TextsSHA256 string `json:"texts_sha256"`
		IDs         [][]kv.Token
		Decoded     []string
	}
	data, err := os.ReadFile(filepath.Join(filepath.Dir(path), "ids.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &want); err != nil || len(want.IDs) != len(texts) || want.TextsSHA256 != sum {
		t.Fatalf("%s: ids.json is of other texts; run tools/tokenizers/install.py again (%v)", name, err)
	}
	tok, err := open(path)
	if errors.Is(err, ErrUnsupported) {
		_, reason, _ := strings.Cut(err.Error(), ErrUnsupported.Error()+": ")
		reason, _, _ = strings.Cut(reason, ";")
		return fmt.Sprintf("| %s | refused: %s | | | |", name, reason)
	}
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return ""
	}
	encoder := tok.NewEncoder()
	encoded, decoded := 0, 0
	for i, text := range texts {
		if got := encodedBy(encoder, nil, text.Text); slices.Equal(got, want.IDs[i]) {
			encoded++
		} else {
			t.Logf("%s: %s %q\n got %v\nwant %v", name, text.Kind, text.Text, got, want.IDs[i])
		}
		if got := toValid(tok.Decode(nil, want.IDs[i], true)); got == want.Decoded[i] {
			decoded++
		} else {
			t.Logf("%s: %s: %v decodes to %q, want %q", name, text.Kind, want.IDs[i], got, want.Decoded[i])
		}
	}
	bytes, holes := missing(tok)
	return fmt.Sprintf("| %s | %d, %d holes | %d | %d of %d | %d of %d |", name, tok.VocabSize(), holes, bytes, encoded, len(texts), decoded, len(texts))
}

// missing returns how many bytes of a byte-level vocabulary have no token, and how many ids have
// none.
func missing(tok *Tokenizer) (bytes, holes int) {
	for b := range 256 {
		if tok.byteLevel && tok.bytes[b] == noToken {
			bytes++
		}
	}
	for _, known := range tok.known {
		if !known {
			holes++
		}
	}
	return bytes, holes
}

// tableIn returns the text before and after the rows of the document's only table.
func tableIn(t *testing.T, doc string) (before, after string) {
	t.Helper()
	const head = "|---|---|--:|--:|--:|\n"
	at := strings.Index(doc, head)
	if at < 0 {
		t.Fatalf("%s has no table", asIsTable)
	}
	at += len(head)
	end := at
	for strings.HasPrefix(doc[end:], "|") {
		end += strings.Index(doc[end:], "\n") + 1
	}
	if end == at {
		return doc[:at], "\n" + doc[end:]
	}
	return doc[:at], doc[end-1:]
}
