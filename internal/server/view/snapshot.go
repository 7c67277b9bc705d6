package view

// Schema is the value of Snapshot.Schema. It grows when a field changes its meaning or goes, not when one is added.
const Schema = 1

// Snapshot is the state of a server at one moment: the answer of GET /v1/view and each event of GET /v1/view/stream,
// in JSON. Lists are cut (see Config), figures are of all.
type Snapshot struct {
	Schema   int    `json:"schema"`
	AtMillis int64  `json:"at_ms"` // Unix time, ms
	Server   Server `json:"server"`
	Stats
	Now      Point      `json:"now"` // the latest of History
	Running  []Running  `json:"running"`
	Waiting  []Waiting  `json:"waiting"`
	Finished []Finished `json:"finished"` // lately, newest first
	History  History    `json:"history"`
	Curve    *Curve     `json:"curve,omitempty"` // absent if the server tracks none
}

// Server describes the server.
type Server struct {
	Model         string  `json:"model"`
	Version       string  `json:"version"`
	Note          string  `json:"note,omitempty"` // to be shown beside the model
	Backend       string  `json:"backend"`
	UptimeSeconds float64 `json:"uptime_s"`
	MaxPositions  int     `json:"max_positions"` // longest sequence, tokens
	Redacted      bool    `json:"redacted"`      // single requests, their prompts and tenants are left out
	Error         string  `json:"error,omitempty"`
}

// Point is one moment of the history. null: nothing was measured.
type Point struct {
	AtMillis      int64  `json:"at_ms"`
	HitRate       Figure `json:"hit_rate"` // of the prompts admitted within Config.Window, 0 to 1
	TTFTp50Millis Figure `json:"ttft_p50_ms"`
	TTFTp99Millis Figure `json:"ttft_p99_ms"` // time to the first token, within the window
	ITLp50Millis  Figure `json:"itl_p50_ms"`
	ITLp99Millis  Figure `json:"itl_p99_ms"`      // between two tokens of an answer
	PromptRate    Figure `json:"prompt_tokens_s"` // admitted per second, cached ones included
	CachedRate    Figure `json:"cached_tokens_s"` // of these, cached
	OutputRate    Figure `json:"output_tokens_s"` // per second
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
	ComputedTokens int     `json:"computed_tokens"` // with KV: cached and computed ones, of prompt and output
	OutputTokens   int     `json:"output_tokens"`
	Preemptions    int     `json:"preemptions"`
	AgeSeconds     float64 `json:"age_s"`
}

// Waiting is a sample without a slot, and the reason.
type Waiting struct {
	Request      uint64 `json:"request"`
	Sample       int    `json:"sample"`
	Cause        string `json:"cause"` // scheduler.Cause
	Why          string `json:"why"`   // a sentence
	CachedTokens int    `json:"cached_tokens"`
}

// Finished is a request that has ended. The server gives it to Feed.Finish.
type Finished struct {
	Tenant       string  `json:"tenant,omitempty"`
	Reason       string  `json:"reason"` // "stop", "length", ...
	PromptTokens int     `json:"prompt_tokens"`
	CachedTokens int     `json:"cached_tokens"`
	OutputTokens int     `json:"output_tokens"`
	TTFTMillis   float64 `json:"ttft_ms"`
	TotalMillis  float64 `json:"total_ms"`
}

// History has one entry per sample in each list, oldest first. Nothing is sampled
// while nobody watches, so there may be gaps in AtMillis.
type History struct {
	PeriodMillis  int64    `json:"period_ms"` // between two samples
	WindowMillis  int64    `json:"window_ms"` // that hit rates and latencies are taken over
	AtMillis      []int64  `json:"at_ms"`
	HitRate       []Figure `json:"hit_rate"`
	TTFTp50Millis []Figure `json:"ttft_p50_ms"`
	TTFTp99Millis []Figure `json:"ttft_p99_ms"`
	ITLp50Millis  []Figure `json:"itl_p50_ms"`
	ITLp99Millis  []Figure `json:"itl_p99_ms"`
	PromptRate    []Figure `json:"prompt_tokens_s"`
	CachedRate    []Figure `json:"cached_tokens_s"`
	OutputRate    []Figure `json:"output_tokens_s"`
	Running       []int    `json:"running"`
	Waiting       []int    `json:"waiting"`
	UsedPages     []int    `json:"used_pages"`
}

// Node is a run of cached tokens, or, if More > 0, stands for More nodes below Parent
// that are too small to be shown one by one.
type Node struct {
	ID        uint32  `json:"id"`     // 0 if More > 0
	Parent    uint32  `json:"parent"` // 0 at the beginning of a namespace
	Space     int     `json:"space"`  // namespaces are numbered from 0 in order
	Start     int     `json:"start"`  // tokens before it
	Tokens    int     `json:"tokens"`
	Pages     int     `json:"pages"`
	Hits      uint64  `json:"hits"`   // reuses that ended here
	Reuses    uint64  `json:"reuses"` // reuses that came through here: Hits of all its subtree
	Heat      float64 `json:"heat"`   // when the subtree was last used: 0 the oldest of the tree, 1 now
	Pins      int     `json:"pins"`   // handles and pinned children; 2 or more: shared by who runs now
	Tail      bool    `json:"tail,omitempty"`
	More      int     `json:"more,omitempty"`
	Text      string  `json:"text,omitempty"`       // the beginning of it; never if redacted
	TextTotal bool    `json:"text_total,omitempty"` // Text is all of it
}

// Curve estimates the hit rate of the cache at other sizes.
type Curve struct {
	CapacityTokens []int     `json:"capacity_tokens"` // ascending
	HitRate        []float64 `json:"hit_rate"`        // 0 to 1, one per capacity
	PoolTokens     int       `json:"pool_tokens"`     // the size that it has
}
