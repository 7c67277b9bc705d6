package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"testing"
)

// said is the outcome of one request of TestFleetPublicTokens.
type said struct {
	worker          string
	overlap, cached int // blocks known to the router, tokens found by the worker
}

// say sends a prompt with a salt, whose first tokens are public, through the router.
func (f *realFleet) say(prompt []int, salt string, public int) said {
	f.Helper()
	body, err := json.Marshal(map[string]any{"prompt": prompt, "max_tokens": 1, "ignore_eos": true, "cache_salt": salt,
		"coppice": map[string]any{"public_tokens": public}})
	if err != nil {
		f.Fatal(err)
	}
	res, err := asker.Post(f.router.url+"/v1/completions", "application/json", bytes.NewReader(body))
	if err != nil {
		f.Fatal(err)
	}
	defer res.Body.Close()
	var a struct {
		Usage struct {
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	overlap, err2 := strconv.Atoi(res.Header.Get("X-Coppice-Overlap-Blocks"))
	if err := json.NewDecoder(res.Body).Decode(&a); err != nil || err2 != nil || res.StatusCode != http.StatusOK {
		f.Fatal(res.Status, err, err2)
	}
	f.untilAgreed()
	return said{res.Header.Get("X-Coppice-Worker"), overlap, a.Usage.Details.Cached}
}

// TestFleetPublicTokens checks that a request finds the public tokens of a request with
// another salt: the router knows the worker that has them, and the worker does not compute
// them again. The tokens after them belong to the salt, and a request without public tokens
// shares nothing.
func TestFleetPublicTokens(t *testing.T) {
	t.Parallel()
	const public, private, block = 640, 160, 16
	f := startFleet(t, 3, 20_000, "--no-predict")
	for group := range uint64(4) {
		prefix := ids(public, 1, group)
		own := func(salt uint64) []int { return append(slices.Clone(prefix), ids(private, 2+salt, group)...) }
		first := f.say(own(1), "a", public)
		if first.overlap != 0 || first.cached != 0 {
			t.Fatalf("group %d, the first request: %+v", group, first)
		}
		last := (public + private - 1) / block // the last token is always computed
		for _, tc := range []struct {
			name string
			got  said
			want said
		}{
			{"another salt", f.say(own(2), "b", public), said{first.worker, public / block, public}},
			{"another salt with the first one's continuation", f.say(own(1), "b", public), said{first.worker, public / block, public}},
			{"the first salt again", f.say(own(1), "a", public), said{first.worker, last + 1, public + private - 1}},
			{"half of it public", f.say(own(3), "c", public/2), said{first.worker, public / 2 / block, public / 2}},
			{"nothing public", f.say(own(1), "d", 0), said{"", 0, 0}},
		} {
			if tc.want.worker == "" {
				tc.got.worker = "" // any worker is fine
			}
			if tc.got != tc.want {
				t.Errorf("group %d, %s: %s, want %s", group, tc.name, fmt.Sprintf("%+v", tc.got), fmt.Sprintf("%+v", tc.want))
			}
		}
	}
}
