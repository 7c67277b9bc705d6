package server

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/mempool/stores"
)

// TestPark: a caller parks its session over HTTP, sees it in the list, and a request that continues it finds the KV on the disk, also after a
// restart. Other tenants see nothing of it, and a release removes the name.
func TestPark(t *testing.T) {
	disk := stores.Config{Disk: t.TempDir(), DiskBytes: 64 << 20, ExtentPages: 2}
	with := setup{Server: Config{Keys: twoTenants}, Node: coppice.Config{Tiers: coppice.Tiers{Open: disk.Open, TokenSeconds: 1}}}
	turn := func(b *bed, n int) (cached, fromDisk int) {
		t.Helper()
		rng := rand.New(rand.NewPCG(1, 1))
		prompt := make([]int, n)
		for i := range prompt {
			prompt[i] = 32 + rng.IntN(90)
		}
		text, err := json.Marshal(prompt)
		b.ok(err)
		a := b.do("POST", "/v1/completions", fmt.Sprintf(`{"prompt":%s,"max_tokens":1,"ignore_eos":true,"prompt_cache_key":"a","cache_salt":"s"}`, text))
		var said struct {
			Usage struct {
				Details struct {
					Cached int            `json:"cached_tokens"`
					ByTier map[string]int `json:"cached_tokens_by_tier"`
				} `json:"prompt_tokens_details"`
			}
		}
		if err := json.Unmarshal(a.body, &said); err != nil || a.StatusCode != 200 {
			t.Fatalf("%s %s: %v", a.Status, a.body, err)
		}
		return said.Usage.Details.Cached, said.Usage.Details.ByTier["disk"]
	}
	parked := func(b *bed, query, want string) {
		t.Helper()
		if a := b.do("GET", "/v1/cache/parked"+query, ""); a.StatusCode != 200 || string(a.body) != `{"sessions":[`+want+`]}` {
			t.Errorf("parked at %q: %s %s, want %s", query, a.Status, a.body, want)
		}
	}
	const session, listed = `{"session":"a","cache_salt":"s"}`, `{"session":"a","tokens":301}`
	t.Run("parks", func(t *testing.T) {
		b := start(t, with)
		b.key = "secret-of-a"
		b.refused("POST", "/v1/cache/park", session, 404, "unknown_session")
		turn(b, 300)
		b.refused("POST", "/v1/cache/park", `{"session":"a"}`, 404, "unknown_session")
		before := b.stats().Scheduler.Cache.Pages
		if a := b.do("POST", "/v1/cache/park", session); a.StatusCode != 200 || string(a.body) != `{"parked_tokens":288,"tier":"disk"}` {
			t.Errorf("%s %s", a.Status, a.body)
		}
		if after := b.stats().Scheduler.Cache.Pages; after >= before {
			t.Errorf("the device has %d pages of it, and had %d before", after, before)
		}
		parked(b, "?cache_salt=s", listed)
		parked(b, "", "")
		b.key = "secret-of-b"
		parked(b, "?cache_salt=s", "")
		b.refused("POST", "/v1/cache/park", session, 404, "unknown_session")
		b.refused("POST", "/v1/cache/release", session, 404, "unknown_session")
		b.key = "secret-of-a"
		if cached, fromDisk := turn(b, 320); fromDisk < 256 {
			t.Errorf("a turn finds %d tokens, %d of them on the disk", cached, fromDisk)
		}
		parked(b, "?cache_salt=s", listed) // the name stays
		if a := b.do("POST", "/v1/cache/park", session); a.StatusCode != 200 {
			t.Errorf("%s %s", a.Status, a.body)
		}
		parked(b, "?cache_salt=s", `{"session":"a","tokens":321}`)
	})
	t.Run("after a restart", func(t *testing.T) {
		b := start(t, with)
		b.key = "secret-of-a"
		parked(b, "?cache_salt=s", `{"session":"a","tokens":321}`)
		if a := b.do("POST", "/v1/cache/expect", `{"session":"a","cache_salt":"s","seconds":0.001}`); a.StatusCode != 200 {
			t.Errorf("a parked session is expected: %s %s", a.Status, a.body)
		}
		if cached, _ := turn(b, 340); cached < 304 {
			t.Errorf("a turn finds %d tokens", cached)
		}
		if a := b.do("POST", "/v1/cache/release", session); a.StatusCode != 200 {
			t.Errorf("%s %s", a.Status, a.body)
		}
		parked(b, "?cache_salt=s", "")
		b.refused("POST", "/v1/cache/expect", `{"session":"a","cache_salt":"s","seconds":1}`, 404, "unknown_session")
	})
	t.Run("without tiers", func(t *testing.T) {
		b := start(t, setup{Server: Config{Keys: twoTenants}})
		b.key = "secret-of-a"
		turn(b, 100)
		b.refused("POST", "/v1/cache/park", session, 400, "no_tier")
	})
}
