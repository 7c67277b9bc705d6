package fleetview

// Schema is of Snapshot; it changes when a field changes its meaning or goes.
const Schema = 1

// Snapshot is the answer of /v1/fleet/view: what the page and coppice top show.
type Snapshot struct {
	Schema   int      `json:"schema"`
	Version  string   `json:"version,omitempty"`
	UptimeS  float64  `json:"uptime_s"`
	Policy   string   `json:"policy"`
	Prompts  string   `json:"prompts"` // compared by tokens or by bytes
	Open     int      `json:"open_requests"`
	Queued   int      `json:"queued_requests"` // while all workers are busy
	Troubles []string `json:"troubles"`
	Fleet    Sums     `json:"fleet"`
	Workers  []Worker `json:"workers"`
	Recent   []Routed `json:"recent"` // the newest first
}

// Worker is one worker of a Snapshot, over its ranks.
type Worker struct {
	Name     string   `json:"name"`
	URL      string   `json:"url"`
	State    string   `json:"state"`
	Error    string   `json:"error,omitempty"`
	Mode     string   `json:"mode"` // how its cache is known: events, approximate or waiting
	Pool     string   `json:"pool,omitempty"`
	Models   []string `json:"models"`
	Requests int      `json:"active_requests"`
	Prefill  int      `json:"active_prefill_tokens"` // prompt tokens that it has yet to compute, as predicted
	// HeldTokens are known to be in its cache.
	HeldTokens int  `json:"held_tokens"`
	Sums       Sums `json:"sums"`
}
