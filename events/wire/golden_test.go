package wire

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
)

type golden struct {
	Name   string
	Arrays bool
	Time   float64
	Rank   *uint32
	Hex    string
	Events []struct {
		Kind      string
		Hashes    []string
		Parent    *string
		Tokens    []uint32
		BlockSize int    `json:"block_size"`
		LoRAID    *int64 `json:"lora_id"`
		Medium    *string
		LoRA      *string `json:"lora_name"`
		Group     *int32
	}
}

func goldens(t testing.TB) []golden {
	text, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Goldens []golden }
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Goldens) < 20 {
		t.Fatalf("%d goldens", len(file.Goldens))
	}
	return file.Goldens
}

func (g *golden) payload(t testing.TB) []byte {
	payload, err := hex.DecodeString(g.Hex)
	if err != nil {
		t.Fatal(err)
	}
	return payload
}

func same[T comparable](t *testing.T, what string, got T, has bool, want *T) {
	t.Helper()
	if has != (want != nil) || has && got != *want {
		t.Errorf("%s: %v (%v), want %v", what, got, has, want)
	}
}

// TestGoldens: batches written by msgspec decode as expected. Those with the fields that we write are
// written to the same bytes, or in array form to the beginning of each event.
func TestGoldens(t *testing.T) {
	var d Decoder
	equal := 0
	for _, g := range goldens(t) {
		t.Run(g.Name, func(t *testing.T) {
			payload := g.payload(t)
			b, err := d.Decode(payload)
			if err != nil {
				t.Fatal(err)
			}
			if b.Time != g.Time || b.Unknown != 0 || len(b.Events) != len(g.Events) {
				t.Fatalf("time %v, %d events, %d unknown", b.Time, len(b.Events), b.Unknown)
			}
			same(t, "rank", b.Rank, b.HasRank, g.Rank)
			for i := range b.Events {
				e, want := &b.Events[i], &g.Events[i]
				if e.Kind.String() != want.Kind || e.BlockTokens != want.BlockSize || !slices.Equal(e.Tokens, want.Tokens) {
					t.Fatalf("%v, block size %d, tokens %v", e.Kind, e.BlockTokens, e.Tokens)
				}
				var hashes []string
				for _, h := range e.Hashes {
					hashes = append(hashes, strconv.FormatUint(h, 10))
				}
				if !slices.Equal(hashes, want.Hashes) {
					t.Errorf("hashes %v, want %v", hashes, want.Hashes)
				}
				same(t, "parent", strconv.FormatUint(e.Parent, 10), e.HasParent, want.Parent)
				same(t, "LoRA id", e.LoRAID, e.HasLoRAID, want.LoRAID)
				same(t, "medium", string(e.Medium), e.Medium != nil, want.Medium)
				same(t, "LoRA", string(e.LoRA), e.LoRA != nil, want.LoRA)
				same(t, "group", e.Group, e.HasGroup, want.Group)
			}
			again := AppendBatch(nil, b, Form{Arrays: g.Arrays})
			if again[0] == 0x92 && payload[0] == 0x93 { // msgspec writes a missing rank as nil
				again = append(append([]byte{0x93}, again[1:]...), 0xc0)
			}
			if slices.Equal(again, payload) {
				equal++
			}
			if strings.HasPrefix(g.Name, "vllm arrays, last: a root") {
				ours, theirs := arraysOf(t, again), arraysOf(t, payload)
				for i, e := range ours {
					if n := len(e); fmt.Sprint(e) != fmt.Sprint(theirs[i][:n]) || strings.Trim(fmt.Sprint(theirs[i][n:]), "[]<nil> ") != "" {
						t.Errorf("event %d is written as\n%v, was\n%v", i, e, theirs[i])
					}
				}
			}
		})
	}
	if equal != 6 {
		t.Errorf("%d goldens are written to the same bytes", equal)
	}
}

// arraysOf returns the events of a batch in array form.
func arraysOf(t *testing.T, payload []byte) (events [][]any) {
	t.Helper()
	var batch []msgpack.RawMessage
	if err := msgpack.Unmarshal(payload, &batch); err != nil {
		t.Fatal(err)
	}
	if err := msgpack.Unmarshal(batch[1], &events); err != nil {
		t.Fatal(err)
	}
	return events
}

// TestWideHashes: hashes in the wide form decode the same.
func TestWideHashes(t *testing.T) {
	var d, d2 Decoder
	for _, g := range goldens(t) {
		b, err := d.Decode(g.payload(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, form := range []Form{{}, {Arrays: true}} {
			wide := AppendBatch(nil, b, form)
			again, err := d2.Decode(wide)
			if err != nil {
				t.Fatalf("%s %+v: %v", g.Name, form, err)
			}
			for i := range b.Events {
				x, y := &b.Events[i], &again.Events[i]
				if x.Kind != y.Kind || !slices.Equal(x.Hashes, y.Hashes) || x.Parent != y.Parent || x.HasParent != y.HasParent || !slices.Equal(x.Tokens, y.Tokens) ||
					x.BlockTokens != y.BlockTokens || string(x.Medium) != string(y.Medium) || string(x.LoRA) != string(y.LoRA) || string(x.Extra) != string(y.Extra) {
					t.Fatalf("%s %+v: event %d differs", g.Name, form, i)
				}
			}
		}
	}
	small := Batch{Events: []Event{{Kind: BlockRemoved, Hashes: []uint64{1}}}}
	if got := AppendBatch(nil, &small, Form{Arrays: true}); !slices.Contains(got, 0xcf) {
		t.Errorf("hash 1 in short form: %x", got)
	}
}

func TestExtraKeys(t *testing.T) {
	var d Decoder
	found := 0
	for _, g := range goldens(t) {
		b, err := d.Decode(g.payload(t))
		if err != nil {
			t.Fatal(err)
		}
		for i := range b.Events {
			if b.Events[i].Extra == nil {
				continue
			}
			found++
			type key struct {
				block  int
				text   string
				nested bool
			}
			var got []key
			for x := b.Events[i].ExtraKeys(); ; {
				k, ok := x.Next()
				if !ok {
					break
				}
				got = append(got, key{k.Block, string(k.Text), k.Nested})
			}
			hex64 := string(slices.Repeat([]byte("a"), 64))
			want := []key{{0, "tuned", false}, {0, hex64, true}, {0, "tenant", false}, {2, "", false}, {2, "", false}}
			if !slices.Equal(got, want) {
				t.Errorf("%s: %+v", g.Name, got)
			}
		}
	}
	if found != 2 {
		t.Errorf("%d events with extra keys", found)
	}
}
