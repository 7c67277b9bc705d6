package kv

import (
	"github.com/coppice-llm/coppice/internal/enum"
)

// Token is a vocabulary index.
type Token uint32

// PageID names one page of a device pool: the KV of PageTokens consecutive tokens in all
// layers. Ids run from 0 to the pool's capacity minus one. They have 32 bits because
// tables of ids are copied at every step.
type PageID int32

// NoPage is the absent page.
const NoPage PageID = -1

// FloorPages returns the number of whole pages in n tokens: 2 for 40 tokens in pages of
// 16.
func FloorPages(n, pageTokens int) int { return n / pageTokens }

// CeilPages returns the number of pages that n tokens occupy, including a partial last
// one: 3 for 40 tokens in pages of 16.
func CeilPages(n, pageTokens int) int { return (n + pageTokens - 1) / pageTokens }

// Namespace separates requests that must not share KV entries although their tokens are
// equal. The fields are never joined into one string, so ("bc", "a") and ("c", "ab")
// can't collide. The zero Namespace is the public one. A Namespace is comparable and
// serves as a map key.
type Namespace struct {
	Model string // set where one cache serves several models
	LoRA  string // adapter name: KV differs between adapters
	Salt  string // tenant or cache salt: separates KV that would be equal
}

// Media is a run of placeholder tokens for something else, such as the patches of an
// image: tokens [At, At+Tokens) of a sequence.
type Media struct {
	At     int
	Tokens int    // at least 1
	Hash   uint64 // of the content and of its preprocessing: equal hashes mean equal KV
}

// Tier is a level of the KV memory, fastest first.
type Tier uint8

// The tiers, with Dynamo's names in brackets.
const (
	TierDevice Tier = iota // device memory [G1]
	TierHost               // host memory, page-locked or not [G2]
	TierDisk               // local disk [G3]
	TierShared             // a directory that several processes share [G4]
	TierObject             // an object store [G4]

	Tiers = iota // how many there are
)

var tierNames = enum.New[Tier]("kv", "tier", "device", "host", "disk", "shared", "object")

func (t Tier) String() string { return tierNames.Name(t) }

// DType is the element type of stored KV entries or weights.
type DType uint8

// The element types.
const (
	F32 DType = iota
	F16
	BF16
	FP8 // e4m3
	U8
	// Q8_0 is blocks of 32: signed bytes with one f16 as their scale, llama.cpp's
	// block_q8_0.
	Q8_0
)

var (
	dtypes     = enum.New[DType]("kv", "dtype", "f32", "f16", "bf16", "fp8", "u8", "q8_0")
	dtypeBytes = [...]int{4, 2, 2, 1, 1, 1}
)

// Bytes returns the size of one element. For Q8_0 it leaves out the scale, which 32
// elements share; see Size.
func (d DType) Bytes() int { return dtypeBytes[d] }

// Size returns the bytes of n elements. For Q8_0, n must be a multiple of 32: 64
// elements take 64 + 2·2 = 68 bytes.
func (d DType) Size(n int) int {
	if d == Q8_0 {
		return n + n/32*2
	}
	return n * d.Bytes()
}

func (d DType) String() string { return dtypes.Name(d) }

// MarshalText returns the type's name as String does. The error is always nil.
func (d DType) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText sets d to the type with the name text. It returns an error for an unknown name.
func (d *DType) UnmarshalText(text []byte) error { return dtypes.Read(d, text) }
