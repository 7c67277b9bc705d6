package server

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/mempool/stores"
)

// sessionBody names the session that parkTurn continues, in requests about it.
const sessionBody = `{"session":"a","cache_salt":"s"}`

// parkSetup is a node with a disk tier in a directory of the test, and two tenants.
func parkSetup(t *testing.T) setup {
	disk := stores.Config{Disk: t.TempDir(), DiskBytes: 64 << 20, ExtentPages: 2}
	return setup{Server: Config{Keys: twoTenants}, Node: coppice.Config{Tiers: coppice.Tiers{Open: disk.Open, TokenSeconds: 1}}}
}

// startAs starts a server and gives it the key of a tenant.
func startAs(t *testing.T, with setup, key string) *bed {
	b := start(t, with)
	b.key = key
	return b
}

// parkTurn sends a prompt of n tokens, each a continuation of the shorter ones, as a turn of the session. It returns how many of them were
// cached, and how many on the disk.
func (b *bed) parkTurn(n int) (cached, fromDisk int) {
	b.Helper()
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
		b.Fatalf("%s %s: %v", a.Status, a.body, err)
	}
	return said.Usage.Details.Cached, said.Usage.Details.ByTier["disk"]
}

// succeeds checks that a POST gets 200, and the body if want is not empty.
func (b *bed) succeeds(path, body, want string) {
	b.Helper()
	if a := b.do("POST", path, body); a.StatusCode != 200 || want != "" && string(a.body) != want {
		b.Errorf("POST %s %s: %s %s, want %s", path, body, a.Status, a.body, want)
	}
}

// lists checks the caller's parked sessions of a cache_salt.
func (b *bed) lists(salt, want string) {
	b.Helper()
	if a := b.do("GET", "/v1/cache/parked?cache_salt="+salt, ""); a.StatusCode != 200 || string(a.body) != `{"sessions":[`+want+`]}` {
		b.Errorf("parked with salt %q: %s %s, want %s", salt, a.Status, a.body, want)
	}
}

// TestPark: a caller parks its session over HTTP, which takes its KV off the device, sees it in the list, and a request that continues it finds
// the KV on the disk.
func TestPark(t *testing.T) {
	b := startAs(t, parkSetup(t), "secret-of-a")
	b.refused("POST", "/v1/cache/park", sessionBody, 404, "unknown_session")
	b.parkTurn(300)
	b.refused("POST", "/v1/cache/park", `{"session":"a"}`, 404, "unknown_session")
	before := b.stats().Scheduler.Cache.Pages
	b.succeeds("/v1/cache/park", sessionBody, `{"parked_tokens":288,"tier":"disk"}`)
	if after := b.stats().Scheduler.Cache.Pages; after >= before {
		t.Errorf("the device has %d pages of it, and had %d before", after, before)
	}
	b.lists("s", `{"session":"a","tokens":301}`)
	b.lists("", "")
	if cached, fromDisk := b.parkTurn(320); fromDisk < 256 {
		t.Errorf("a turn finds %d tokens, %d of them on the disk", cached, fromDisk)
	}
	b.lists("s", `{"session":"a","tokens":301}`) // the name stays
	b.succeeds("/v1/cache/park", sessionBody, "")
	b.lists("s", `{"session":"a","tokens":321}`)
}

// TestParkIsPrivate: another tenant neither sees nor parks nor releases a parked session of the same name.
func TestParkIsPrivate(t *testing.T) {
	b := startAs(t, parkSetup(t), "secret-of-a")
	b.parkTurn(300)
	b.succeeds("/v1/cache/park", sessionBody, "")
	b.key = "secret-of-b"
	b.lists("s", "")
	b.refused("POST", "/v1/cache/park", sessionBody, 404, "unknown_session")
	b.refused("POST", "/v1/cache/release", sessionBody, 404, "unknown_session")
	b.key = "secret-of-a"
	b.lists("s", `{"session":"a","tokens":301}`)
}

// TestParkRestart: after a restart a parked session is listed, can be expected, and is found by the next turn. A release removes its name.
func TestParkRestart(t *testing.T) {
	with := parkSetup(t)
	t.Run("parks", func(t *testing.T) {
		b := startAs(t, with, "secret-of-a")
		b.parkTurn(320)
		b.succeeds("/v1/cache/park", sessionBody, "")
	})
	b := startAs(t, with, "secret-of-a")
	b.lists("s", `{"session":"a","tokens":321}`)
	b.succeeds("/v1/cache/expect", `{"session":"a","cache_salt":"s","seconds":0.001}`, "")
	if cached, _ := b.parkTurn(340); cached < 304 {
		t.Errorf("a turn finds %d tokens", cached)
	}
	b.succeeds("/v1/cache/release", sessionBody, "")
	b.lists("s", "")
	b.refused("POST", "/v1/cache/expect", `{"session":"a","cache_salt":"s","seconds":1}`, 404, "unknown_session")
}

// TestParkWithoutTiers: a park fails with a reason if there is no lower tier.
func TestParkWithoutTiers(t *testing.T) {
	b := startAs(t, setup{Server: Config{Keys: twoTenants}}, "secret-of-a")
	b.parkTurn(100)
	b.refused("POST", "/v1/cache/park", sessionBody, 400, "no_tier")
}
