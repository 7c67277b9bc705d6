package bench

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/coppice-llm/coppice/kv"
)

const mooncakeSample = "testdata/mooncake/conversation-300.jsonl"

func TestReadMooncake(t *testing.T) {
	const lines = `{"timestamp": 0, "input_length": 1025, "output_length": 5, "hash_ids": [7, 0, 9]}
{"timestamp": 0, "input_length": 512, "output_length": 0, "hash_ids": [7]}
{"timestamp": 3000, "input_length": 33, "output_length": 1, "hash_ids": [268435455]}
`
	for _, text := range []string{lines, strings.TrimSuffix(lines, "\n"), strings.ReplaceAll(lines, "\n", "\r\n")} {
		tr, err := ReadMooncake(iotest.OneByteReader(strings.NewReader(text)))
		if err != nil {
			t.Fatal(err)
		}
		seven := []kv.Token{112, 113, 114, 115, 116, 117, 118, 119, 120, 121, 122, 123, 124, 125, 126, 127}
		long := append(slices.Clone(seven), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 144)
		want := [][]kv.Token{long, seven, {1<<32 - 16, 1<<32 - 15}}
		if !slices.EqualFunc(tr.requests, want, slices.Equal) || tr.Tokens() != 33+16+2 || tr.longest != 33 {
			t.Errorf("%v, %d tokens, longest %d", tr.requests, tr.Tokens(), tr.longest)
		}
	}
}

// TestMooncakeSample compares hits in the made-up pages of a recorded trace with hits
// in an LRU list of its block ids, which uses neither tokens nor a tree.
func TestMooncakeSample(t *testing.T) {
	tr, err := OpenMooncake(mooncakeSample)
	if err != nil {
		t.Fatal(err)
	}
	blocks, served := sampleBlocks(t)
	if tr.Requests() != 300 || len(blocks) != 300 {
		t.Fatalf("%d requests of %d lines", tr.Requests(), len(blocks))
	}
	if scaled := tr.Tokens() * MooncakeScale; scaled < served || scaled >= served+300*MooncakeScale {
		t.Errorf("%d tokens stand for %d served ones, there are %d", tr.Tokens(), scaled, served)
	}
	p, err := newPageTrace(tr, mooncakeTokens)
	if err != nil {
		t.Fatal(err)
	}
	for _, limit := range []int{300, 1000, 3000, 1 << 30} {
		lru, hits := naiveLRU(p, limit), blockLRU(blocks, limit)
		if lru != hits || hits == 0 {
			t.Errorf("room for %d blocks: %d pages matched, %d blocks hit", limit, lru, hits)
		}
	}
}

// sampleBlocks returns the ids of the whole blocks of each line, and the sum of the
// served tokens.
func sampleBlocks(t *testing.T) (blocks [][]int64, served int) {
	t.Helper()
	requests, err := OpenMooncakeRequests(mooncakeSample)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range requests {
		blocks = append(blocks, r.IDs[:r.Prompt/MooncakeBlock])
		served += r.Prompt
	}
	return blocks, served
}

// blockLRU returns the number of blocks found in an LRU list of at most limit ids. requests has
// the ids of the blocks of each request. Of one request, later blocks count as older, so that they
// are evicted first.
func blockLRU(requests [][]int64, limit int) (hits int) {
	var order []int64 // the oldest first
	for _, ids := range requests {
		rest := order[:0:0]
		for _, id := range order {
			if slices.Contains(ids, id) {
				hits++
			} else {
				rest = append(rest, id)
			}
		}
		rest = rest[max(0, len(rest)+len(ids)-limit):]
		backwards := slices.Clone(ids)
		slices.Reverse(backwards)
		order = append(rest, backwards...)
	}
	return hits
}

func TestMooncakeBadInput(t *testing.T) {
	const good = `{"timestamp": 5, "input_length": 513, "output_length": 5, "hash_ids": [1, 2]}` + "\n"
	for _, tc := range []struct {
		name, line string
		want       []string
	}{
		{"no JSON", "x", []string{"line 2", "JSON object"}},
		{"empty line", "", []string{"line 2", "it is empty"}},
		{"half a line", `{"timestamp": 5, "input_le`, []string{"line 2", "unexpected EOF"}},
		{"a list", `[1]`, []string{"line 2", "array"}},
		{"two objects", strings.TrimSpace(good) + strings.TrimSpace(good), []string{"more than one"}},
		{"unknown field", `{"timestamp": 5, "tokens": 1}`, []string{"unknown field", "tokens"}},
		{"no timestamp", `{"input_length": 1, "output_length": 5, "hash_ids": [1]}`, []string{"timestamp is missing"}},
		{"no input_length", `{"timestamp": 5, "output_length": 5, "hash_ids": [1]}`, []string{"input_length is missing"}},
		{"no output_length", `{"timestamp": 5, "input_length": 5, "hash_ids": [1]}`, []string{"output_length is missing"}},
		{"no ids", `{"timestamp": 5, "input_length": 5, "output_length": 5}`, []string{"0 hash_ids", "want 1"}},
		{"negative time", `{"timestamp": -1, "input_length": 5, "output_length": 5, "hash_ids": [1]}`, []string{"timestamp is -1"}},
		{"empty input", `{"timestamp": 5, "input_length": 0, "output_length": 5, "hash_ids": []}`, []string{"input_length is 0, want 1"}},
		{"negative input", `{"timestamp": 5, "input_length": -5, "output_length": 5, "hash_ids": []}`, []string{"input_length is -5"}},
		{"input too long", `{"timestamp": 5, "input_length": 16777217, "output_length": 5, "hash_ids": []}`, []string{"16777217", "16777216"}},
		{"negative output", `{"timestamp": 5, "input_length": 5, "output_length": -5, "hash_ids": [1]}`, []string{"output_length is -5"}},
		{"too few ids", `{"timestamp": 5, "input_length": 513, "output_length": 5, "hash_ids": [1]}`, []string{"1 hash_ids", "513", "want 2"}},
		{"too many ids", `{"timestamp": 5, "input_length": 512, "output_length": 5, "hash_ids": [1, 2]}`, []string{"2 hash_ids", "want 1"}},
		{"negative id", `{"timestamp": 5, "input_length": 513, "output_length": 5, "hash_ids": [1, -2]}`, []string{"hash_ids[1] is -2"}},
		{"id too large", `{"timestamp": 5, "input_length": 513, "output_length": 5, "hash_ids": [268435456, 1]}`, []string{"hash_ids[0] is 268435456"}},
		{"an id twice", `{"timestamp": 5, "input_length": 513, "output_length": 5, "hash_ids": [3, 3]}`, []string{"hash_ids[1] is 3", "before"}},
		{"a fraction", `{"timestamp": 5.5, "input_length": 513, "output_length": 5, "hash_ids": [3, 4]}`, []string{"line 2", "5.5"}},
		{"back in time", `{"timestamp": 4, "input_length": 513, "output_length": 5, "hash_ids": [3, 4]}`, []string{"line 2", "timestamp 4 comes after 5"}},
		{"a line too long", strings.Repeat(" ", mooncakeMaxLine), []string{"line 2", "longer than"}},
	} {
		_, err := ReadMooncake(strings.NewReader(good + tc.line + "\n" + good))
		if !errors.Is(err, ErrMooncake) {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		for _, want := range tc.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not mention %q", tc.name, err, want)
			}
		}
	}
	if _, err := ReadMooncake(strings.NewReader("")); !errors.Is(err, ErrMooncake) || !strings.Contains(err.Error(), "empty") {
		t.Errorf("an empty file: %v", err)
	}
	broken := errors.New("disk on fire")
	if _, err := ReadMooncake(io.MultiReader(strings.NewReader(good), iotest.ErrReader(broken))); !errors.Is(err, broken) || errors.Is(err, ErrMooncake) || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("a failing reader: %v", err)
	}
	missing := filepath.Join(t.TempDir(), "missing")
	if _, err := OpenMooncake(missing); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), missing) {
		t.Errorf("no file: %v", err)
	}
	if err := os.WriteFile(missing, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenMooncake(missing); !errors.Is(err, ErrMooncake) || !strings.Contains(err.Error(), missing) {
		t.Errorf("a bad file: %v", err)
	}
}
