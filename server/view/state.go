package view

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
)

// Schema is the value of State.Schema. It increases when a field is removed or changes its
// meaning, not when a field is added.
const Schema = 1

// State describes a server at one moment: the answer of GET /v1/view and each event of
// GET /v1/view/stream, in JSON. Lists are shortened (see Config), totals are complete.
type State struct {
	Schema   int    `json:"schema"`
	AtMillis int64  `json:"at_ms"` // Unix time, ms
	Server   Server `json:"server"`
	Stats
	Now      Point      `json:"now"` // the last point of History
	Running  []Running  `json:"running"`
	Waiting  []Waiting  `json:"waiting"`
	Finished []Finished `json:"finished"` // latest endings, newest first
	History  History    `json:"history"`
	Curve    *Curve     `json:"curve,omitempty"` // absent if the server does not track it
}

// Server describes the server.
type Server struct {
	Model         string  `json:"model"`
	Version       string  `json:"version"`
	Note          string  `json:"note,omitempty"` // shown next to the model
	Backend       string  `json:"backend"`
	UptimeSeconds float64 `json:"uptime_s"`
	MaxPositions  int     `json:"max_positions"` // longest sequence, tokens
	Redacted      bool    `json:"redacted"`      // single requests, their prompts and tenants are left out
	Error         string  `json:"error,omitempty"`
}

// Point is one moment of the history. null means not measured.
type Point struct {
	AtMillis      int64  `json:"at_ms"`
	HitRate       Figure `json:"hit_rate"` // of prompts admitted within the window, 0 to 1
	TTFTp50Millis Figure `json:"ttft_p50_ms"`
	TTFTp99Millis Figure `json:"ttft_p99_ms"` // time to first token, within the window
	ITLp50Millis  Figure `json:"itl_p50_ms"`
	ITLp99Millis  Figure `json:"itl_p99_ms"`       // between two tokens of an answer, within the window
	PromptRate    Figure `json:"prompt_tokens_s"`  // admitted per second, cached tokens included
	CachedRate    Figure `json:"cached_tokens_s"`  // cached prompt tokens per second, part of PromptRate
	PrefillRate   Figure `json:"prefill_tokens_s"` // prompt tokens computed per second
	OutputRate    Figure `json:"output_tokens_s"`  // per second
	Running       int    `json:"running"`
	Waiting       int    `json:"waiting"`
	UsedPages     int    `json:"used_pages"`
}

// Running is a sample that has a slot.
type Running struct {
	Request        uint64  `json:"request"`
	Sample         int     `json:"sample"`
	Tenant         string  `json:"tenant,omitempty"`
	PromptTokens   int     `json:"prompt_tokens"`
	CachedTokens   int     `json:"cached_tokens"`   // of the prompt
	ComputedTokens int     `json:"computed_tokens"` // tokens with KV, cached or computed, of prompt and output
	OutputTokens   int     `json:"output_tokens"`
	Preemptions    int     `json:"preemptions"`
	AgeSeconds     float64 `json:"age_s"`
}

// Waiting is a sample without a slot, with the reason.
type Waiting struct {
	Request      uint64 `json:"request"`
	Sample       int    `json:"sample"`
	Cause        string `json:"cause"` // scheduler.Cause
	Why          string `json:"why"`   // the cause as a sentence
	CachedTokens int    `json:"cached_tokens"`
}

// Finished is a request that has ended, as the server gave it to Feed.Finish.
type Finished struct {
	Tenant string `json:"tenant,omitempty"`
	Reason string `json:"reason"` // "stop", "length", ...
	// PrefixBreak says how the request changed the beginning of its conversation: "nonce at token 40, cost 5210".
	PrefixBreak  string  `json:"prefix_break,omitempty"`
	PromptTokens int     `json:"prompt_tokens"`
	CachedTokens int     `json:"cached_tokens"`
	OutputTokens int     `json:"output_tokens"`
	TTFTMillis   float64 `json:"ttft_ms"`
	TotalMillis  float64 `json:"total_ms"`
}

// History has one entry per sample in each list, oldest first. Without watchers nothing is
// sampled, so AtMillis may have gaps.
type History struct {
	PeriodMillis  int64    `json:"period_ms"` // between two samples
	WindowMillis  int64    `json:"window_ms"` // over which hit rates and latencies are taken
	AtMillis      []int64  `json:"at_ms"`
	HitRate       []Figure `json:"hit_rate"`
	TTFTp50Millis []Figure `json:"ttft_p50_ms"`
	TTFTp99Millis []Figure `json:"ttft_p99_ms"`
	ITLp50Millis  []Figure `json:"itl_p50_ms"`
	ITLp99Millis  []Figure `json:"itl_p99_ms"`
	PromptRate    []Figure `json:"prompt_tokens_s"`
	CachedRate    []Figure `json:"cached_tokens_s"`
	PrefillRate   []Figure `json:"prefill_tokens_s"`
	OutputRate    []Figure `json:"output_tokens_s"`
	Running       []int    `json:"running"`
	Waiting       []int    `json:"waiting"`
	UsedPages     []int    `json:"used_pages"`
}

// Node is a run of cached tokens. If More > 0, it represents More nodes below Parent that are
// left out because they matter least.
type Node struct {
	ID        uint32  `json:"id"`     // 0 if More > 0
	Parent    uint32  `json:"parent"` // 0 for the root of a namespace
	Space     int     `json:"space"`  // number of its namespace, from 0 in order of appearance
	Start     int     `json:"start"`  // tokens before it in the sequence
	Tokens    int     `json:"tokens"`
	Pages     int     `json:"pages"`
	Hits      uint64  `json:"hits"`   // cache hits that ended in this node
	Reuses    uint64  `json:"reuses"` // cache hits that ended in its subtree, Hits included
	Heat      float64 `json:"heat"`   // last use of the subtree, from 0 (oldest of the tree) to 1 (newest)
	Pins      int     `json:"pins"`   // handles and pinned children; 2 or more: running requests share it
	Tail      bool    `json:"tail,omitempty"`
	More      int     `json:"more,omitempty"`
	Text      string  `json:"text,omitempty"`       // its beginning; never if redacted
	TextTotal bool    `json:"text_total,omitempty"` // Text is complete
}

// Curve estimates the hit rate of the cache at other sizes.
type Curve struct {
	CapacityTokens []int     `json:"capacity_tokens"` // ascending
	HitRate        []float64 `json:"hit_rate"`        // 0 to 1, one per capacity
	PoolTokens     int       `json:"pool_tokens"`     // the actual size
}

// Figure is a number, or NaN: null in JSON.
type Figure float64

// MarshalJSON returns the number, or null.
func (f Figure) MarshalJSON() ([]byte, error) {
	if !f.Known() || math.IsInf(float64(f), 0) {
		return []byte("null"), nil
	}
	return strconv.AppendFloat(nil, float64(f), 'f', -1, 64), nil
}

// UnmarshalJSON decodes the result of MarshalJSON.
func (f *Figure) UnmarshalJSON(text []byte) error {
	if bytes.Equal(text, []byte("null")) {
		*f = Figure(math.NaN())
		return nil
	}
	return json.Unmarshal(text, (*float64)(f))
}

// Known reports whether f is a number, not NaN.
func (f Figure) Known() bool { return !math.IsNaN(float64(f)) }

// encode returns s as JSON. A redacted state contains nothing about single requests: no
// tenants, no prompt lengths, and no tree nodes, because these are parts of prompts. Counts and
// totals stay.
func (s *State) encode(redacted bool) ([]byte, error) {
	out := *s
	if redacted {
		out.Server.Redacted = true
		out.Tenants, out.Running, out.Waiting, out.Finished, out.Tree.Shown = []Tenant{}, []Running{}, []Waiting{}, []Finished{}, []Node{}
	}
	return json.Marshal(&out)
}
