package fleetview

// Schema is the value of Snapshot.Schema. It increases when a field is removed or changes its
// meaning.
const Schema = 1

// Snapshot is the answer of /v1/fleet/view, for the page and coppice top.
type Snapshot struct {
	Schema   int      `json:"schema"`
	Version  string   `json:"version,omitempty"`
	UptimeS  float64  `json:"uptime_s"`
	Policy   string   `json:"policy"`
	Prompts  string   `json:"prompts"` // tokens or bytes: the unit by which prompts are compared
	Open     int      `json:"open_requests"`
	Queued   int      `json:"queued_requests"` // waiting while all workers are busy
	Troubles []string `json:"troubles"`
	Fleet    Sums     `json:"fleet"`
	Workers  []Worker `json:"workers"`
	Recent   []Routed `json:"recent"` // newest first
}

// About describes a worker.
type About struct {
	Name   string   `json:"name"`
	URL    string   `json:"url"`
	State  string   `json:"state"`
	Error  string   `json:"error,omitempty"`
	Mode   string   `json:"mode"` // source of its index entries: events, approximate, outdated or waiting
	Pool   string   `json:"pool,omitempty"`
	Models []string `json:"models"`
}

// Worker is one worker of a Snapshot, summed over its ranks.
type Worker struct {
	About
	Requests int `json:"active_requests"`
	Prefill  int `json:"active_prefill_tokens"` // prompt tokens still to compute, as predicted
	// HeldTokens is the number of tokens known to be in its cache.
	HeldTokens int  `json:"held_tokens"`
	Sums       Sums `json:"sums"`
}
