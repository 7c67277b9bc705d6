package record

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/checksum"
)

func testSealer(t testing.TB, random io.Reader, secrets ...byte) *Sealer {
	t.Helper()
	var long [][]byte
	for _, b := range secrets {
		long = append(long, bytes.Repeat([]byte{b}, MinSecretBytes))
	}
	s, err := NewSealer(random, long...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// encoded returns a record's bytes. The payload has the numbers from 0 on.
func encoded(t testing.TB, s *Sealer) (f Format, r Record, buf []byte) {
	t.Helper()
	id := mempool.Identity{ModelID: "m", NumericsID: "n", PageLayout: mempool.PageLayout, Layout: testLayout, Sealed: s != nil}
	f = FormatOf(&id, s)
	x := testLayout.AppendExtents(nil, kv.Namespace{Model: "x", LoRA: "y", Salt: "z"}, seq(3, 16), []kv.Media{{At: 2, Tokens: 2, Hash: 5}})[0]
	n := testLayout.Bytes(&x)
	buf = make([]byte, f.RecordBytes(n))
	for i := range n {
		buf[f.HeaderBytes()+i] = byte(i)
	}
	r = Record{Extent: x, Seq: 9, PayloadBytes: n, PayloadSum: checksum.Sum(buf[f.HeaderBytes() : f.HeaderBytes()+n])}
	if err := f.Encode(buf, &r); err != nil {
		t.Fatal(err)
	}
	return f, r, buf
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// TestRecordBytes pins the bytes on disk: directories of earlier versions must stay readable.
func TestRecordBytes(t *testing.T) {
	for _, tc := range []struct {
		s                 *Sealer
		fingerprint, want string
	}{
		{nil, "9bdc86290207aa6517286cc0f43b6992", "86930cb1eeb1520754b5f08f25c1517d196211d01c46f14b90a475e12354cf2f"},
		{testSealer(t, zeros{}, 1, 2), "305674a438f424f4c39783ed389869d2", "324f59cfa3b79c7f7cf08dcefd344fb7d34d85fb0db99ba4b809447ede606011"},
	} {
		f, _, buf := encoded(t, tc.s)
		if sum := sha256.Sum256(buf); f.Fingerprint.String() != tc.fingerprint || hex.EncodeToString(sum[:]) != tc.want {
			t.Errorf("sealed by %v: fingerprint %s, record %x", tc.s.IDs(), f.Fingerprint, sum)
		}
	}
}

// TestSealFlips: a sealed record with any bit flipped, in its header, pages or tags, is refused.
func TestSealFlips(t *testing.T) {
	f, r, buf := encoded(t, testSealer(t, rand.Reader, 1))
	end := f.HeaderBytes() + r.PayloadBytes + tagBytes
	for i := range buf {
		bad := bytes.Clone(buf)
		bad[i] ^= 1 << (i % 8)
		_, _, err := f.Decode(bad)
		if i < end && !errors.Is(err, mempool.ErrCorrupt) && !errors.Is(err, mempool.ErrForeign) {
			t.Fatalf("byte %d flipped: %v", i, err)
		} else if i >= end && err != nil {
			t.Fatalf("byte %d, of the padding, flipped: %v", i, err)
		}
	}
}

// TestSealErrors checks which of the errors a record gets that can't be opened: only wrong bytes are
// mempool.ErrCorrupt.
func TestSealErrors(t *testing.T) {
	f, r, buf := encoded(t, testSealer(t, rand.Reader, 1))
	plain, _, open := encoded(t, nil)
	other := f
	other.Fingerprint[0]++
	with := func(secrets ...byte) Format {
		g := f
		g.Sealer = testSealer(t, rand.Reader, secrets...)
		return g
	}
	later := bytes.Clone(buf)
	later[8]++
	for _, tc := range []struct {
		name string
		f    Format
		b    []byte
		want error
	}{
		{"own", f, buf, nil},
		{"rotated", with(2, 1), buf, nil},
		{"another secret", with(2), buf, mempool.ErrForeign},
		{"no secret", plain, buf, mempool.ErrForeign},
		{"another identity", other, buf, mempool.ErrForeign},
		{"not sealed", f, slices.Concat(open, make([]byte, 4096)), mempool.ErrForeign},
		{"erased", f, make([]byte, len(buf)), mempool.ErrMiss},
		{"cut", f, buf[:f.HeaderBytes()], mempool.ErrCorrupt},
		{"cut in the header", f, buf[:200], mempool.ErrCorrupt},
		{"changed version, same checksum", f, later, mempool.ErrCorrupt},
	} {
		got, pages, err := tc.f.Decode(bytes.Clone(tc.b))
		if !errors.Is(err, tc.want) || err == nil && (got.Key != r.Key || got.Seq != r.Seq || checksum.Sum(pages) != r.PayloadSum) {
			t.Errorf("%s: %v, want %v; %+v", tc.name, err, tc.want, got)
		}
		if err != nil && strings.Contains(err.Error(), "\x01") {
			t.Errorf("%s: the error shows the secret", tc.name)
		}
	}
}

// TestSealIndex: only the same secrets in the same order open an index, and only unchanged.
func TestSealIndex(t *testing.T) {
	f, _, record := encoded(t, testSealer(t, rand.Reader, 1, 2))
	index, err := f.SealIndex([]byte("index"))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := f.OpenIndex(index); err != nil || string(b) != "index" {
		t.Errorf("%q, %v", b, err)
	}
	for i := range index {
		bad := bytes.Clone(index)
		bad[i] ^= 4
		if b, err := f.OpenIndex(bad); err == nil {
			t.Errorf("byte %d flipped: %q", i, b)
		}
	}
	if _, err := f.OpenIndex(record); !errors.Is(err, mempool.ErrCorrupt) {
		t.Errorf("a record as an index: %v", err)
	}
	for _, secrets := range [][]byte{{1}, {2, 1}, {1, 3}, {3}} {
		g := f
		g.Sealer = testSealer(t, rand.Reader, secrets...)
		if b, err := g.OpenIndex(index); err == nil {
			t.Errorf("secrets %v: %q", secrets, b)
		}
	}
}

// TestSealFresh: the same record is sealed to other bytes each time, so that no nonce is used twice.
func TestSealFresh(t *testing.T) {
	s := testSealer(t, rand.Reader, 1)
	f, r, a := encoded(t, s)
	_, _, b := encoded(t, s)
	head := f.HeaderBytes()
	for _, span := range [][2]int{{40, 72}, {72, head - 8}, {head, head + r.PayloadBytes}} {
		if bytes.Equal(a[span[0]:span[1]], b[span[0]:span[1]]) {
			t.Errorf("bytes [%d, %d) of two writes are equal", span[0], span[1])
		}
	}
}

// TestSealerShowsNothing: no form of a Sealer that a log could have shows a secret or a derived key.
func TestSealerShowsNothing(t *testing.T) {
	s := testSealer(t, rand.Reader, 1)
	for _, text := range []string{fmt.Sprint(s), fmt.Sprintf("%+v", s), fmt.Sprintf("%v", struct{ S *Sealer }{s})} {
		if strings.Contains(text, "1 1 1 1") || len(text) > 40 && !strings.Contains(text, "0x") {
			t.Errorf("a Sealer prints as %s", text)
		}
	}
	for _, secrets := range [][][]byte{nil, {make([]byte, 31)}, {make([]byte, 32), make([]byte, 32)}} {
		if _, err := NewSealer(rand.Reader, secrets...); err == nil {
			t.Errorf("%d secrets are accepted", len(secrets))
		}
	}
}

// TestEncodeAllocates: without a Sealer, encoding a record allocates nothing.
func TestEncodeAllocates(t *testing.T) {
	f, r, buf := encoded(t, nil)
	if n := testing.AllocsPerRun(100, func() { _ = f.Encode(buf, &r) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkRecord encodes and decodes a record of 1 MiB, unsealed and sealed. Without a Sealer only the
// header costs time.
//
//	go test ./mempool -run xxx -bench Record
func BenchmarkRecord(b *testing.B) {
	layout := mempool.LayoutOf(16, 64<<10)
	x := layout.AppendExtents(nil, kv.Namespace{Salt: "z"}, seq(3, layout.ExtentTokens()), nil)[0]
	for name, s := range map[string]*Sealer{"sealed=false": nil, "sealed=true": testSealer(b, rand.Reader, 1)} {
		f := Format{Layout: layout, Sealer: s}
		buf := make([]byte, f.SlotBytes())
		r := Record{Extent: x, PayloadBytes: layout.ExtentBytes()}
		b.Run("encode/"+name, func(b *testing.B) {
			b.SetBytes(int64(r.PayloadBytes))
			for b.Loop() {
				if err := f.Encode(buf, &r); err != nil {
					b.Fatal(err)
				}
			}
		})
		sealed := bytes.Clone(buf)
		b.Run("decode/"+name, func(b *testing.B) { // with a copy, since pages are opened in place
			b.SetBytes(int64(r.PayloadBytes))
			for b.Loop() {
				copy(buf, sealed)
				if _, _, err := f.Decode(buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
