package coppice_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/local"
	"github.com/coppice-llm/coppice/mempool/stores"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// openTiers opens the tests' model with a pool of this many tokens and tiers of small extents. KV is always worth a fetch.
func openTiers(tokens int, c stores.Config) (*local.Model, error) {
	c.ExtentPages = 2
	cfg := coppice.Config{Tiers: coppice.Tiers{Open: c.Open, TokenSeconds: 1}}
	return local.Open(nano, local.Options{KVTokens: tokens, Threads: 1, Node: cfg})
}

// words returns n tokens of a prompt with this number.
func words(number uint64, n int) (all []kv.Token) {
	rng := rand.New(rand.NewPCG(number, 7))
	for range n {
		all = append(all, kv.Token(32+rng.IntN(90)))
	}
	return all
}

// TestSessionPark: a parked session is in the tier and off the device, but for what others share, and its next turn has the bits of a plain
// request, with all but the last page from the tier.
func TestSessionPark(t *testing.T) {
	plain := open(t, coppice.Config{})
	for name, c := range map[string]stores.Config{"disk": {Disk: t.TempDir(), DiskBytes: 64 << 20}, "host": {HostBytes: 64 << 20}} {
		m, err := openTiers(4096, c)
		if err != nil {
			t.Fatal(err)
		}
		tier := kv.TierDisk
		if name == "host" {
			tier = kv.TierHost
		}
		ctx := context.Background()
		s := begin(t, m.Node, coppice.SessionOptions{Name: "a", Budget: 5000, Pin: true})
		say(t, plain, s, coppice.Request{Tokens: words(1, 150), MaxTokens: 10})
		other := fork(t, s)
		say(t, plain, other, coppice.Request{Tokens: words(2, 40), MaxTokens: 3})
		say(t, plain, s, coppice.Request{Tokens: words(3, 60), MaxTokens: 10})
		before, err := s.Explain(ctx)
		p, err2 := s.Park(ctx)
		after, err3 := s.Explain(ctx)
		if err := errors.Join(err, err2, err3); err != nil || p.Tier != tier || p.Tokens < s.Len()-16 || before.Cached[kv.TierDevice] < p.Tokens ||
			after.Cached[kv.TierDevice] < 144 || after.Cached[kv.TierDevice] >= 176 || after.Cached[kv.TierDevice]+after.Cached[tier] < p.Tokens {
			t.Errorf("%s: %v\nparked %+v of %d\nbefore: %v\nafter: %v", name, err, p, s.Len(), before, after)
		}
		if all, err := m.ParkedSessions(); err != nil || len(all) != 1 || all[0].Name != "a" {
			t.Errorf("%s: %v, %v", name, all, err)
		}
		if err := s.Resume(ctx); err != nil {
			t.Error(err)
		}
		r, err := s.Text(ctx, coppice.Request{Tokens: words(4, 20), MaxTokens: 4, Digest: true, IgnoreEOS: true})
		st, err3 := m.Stats(ctx)
		want, err2 := plain.Text(ctx, coppice.Request{Tokens: r.Tokens[:r.PromptTokens], MaxTokens: 4, Digest: true, IgnoreEOS: true})
		if err != nil || err2 != nil || r.LogitDigest != want.LogitDigest || err3 != nil || st.Tiers[0].Reads == 0 || r.CachedTokens < p.Tokens {
			t.Errorf("%s: %v, %v, %v, %v of %d tokens are cached", name, err, err2, err3, r.CachedByTier, r.PromptTokens)
		}
		again, err := m.ResumeSession(ctx, coppice.SessionOptions{Name: "a"})
		if left, limited := again.Left(); err != nil || again.Len() != before.PromptTokens || left == 0 || !limited {
			t.Errorf("%s: %v, %d tokens, %d left", name, err, again.Len(), left)
		}
		tenant := coppice.SessionOptions{Name: "a", Chat: coppice.ChatOptions{Request: coppice.Request{Tenant: "other"}}}
		if _, err := m.ResumeSession(ctx, tenant); !errors.Is(err, coppice.ErrNoSession) {
			t.Errorf("%s: another tenant's name: %v", name, err)
		}
		s.Release()
		if _, err := m.ResumeSession(ctx, coppice.SessionOptions{Name: "a"}); !errors.Is(err, coppice.ErrNoSession) {
			t.Errorf("%s: a released session: %v", name, err)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := plain.ParkPrefix(context.Background(), kv.Namespace{}, words(1, 40)); !errors.Is(err, coppice.ErrNoTier) {
		t.Errorf("without tiers: %v", err)
	}
	s := begin(t, plain, coppice.SessionOptions{})
	say(t, plain, s, coppice.Request{Prompt: "Light", MaxTokens: 3})
	if _, err := s.Park(context.Background()); !errors.Is(err, coppice.ErrNoTier) {
		t.Errorf("without tiers: %v", err)
	}
	say(t, plain, s, coppice.Request{Prompt: " is", MaxTokens: 3})
}

// TestSessionParkFails: where the tier has no room for the whole session, Park says so and the session goes on.
func TestSessionParkFails(t *testing.T) {
	plain := open(t, coppice.Config{})
	m, err := openTiers(4096, stores.Config{HostBytes: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	s := begin(t, m.Node, coppice.SessionOptions{})
	say(t, plain, s, coppice.Request{Tokens: words(1, 2000), MaxTokens: 1})
	if _, err := s.Park(context.Background()); !errors.Is(err, coppice.ErrParkFailed) {
		t.Errorf("%v", err)
	}
	say(t, plain, s, coppice.Request{Tokens: words(2, 20), MaxTokens: 3})
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.Park(cancelled); !errors.Is(err, context.Canceled) && !errors.Is(err, coppice.ErrParkFailed) {
		t.Errorf("%v", err)
	}
	say(t, plain, s, coppice.Request{Tokens: words(3, 20), MaxTokens: 3})
}

// parkTest is the variable of the environment with the directory of a process that parks sessions until it is killed.
const parkTest = "COPPICE_TEST_PARK"

// parkOn parks sessions for ever, and prints the name of each when its Park has returned.
func parkOn(dir string) {
	m, err := openTiers(1024, stores.Config{Disk: dir, DiskBytes: 64 << 20, HostBytes: 1 << 20})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	for i := uint64(0); ; i++ {
		s, err := m.NewSession(coppice.SessionOptions{Name: fmt.Sprint(i)})
		if err == nil {
			_, err = s.Text(ctx, coppice.Request{Tokens: words(i, 300), MaxTokens: 5, IgnoreEOS: true})
		}
		if err == nil {
			err = s.Append(chat.Message{Role: "user", Content: "later"})
		}
		if err == nil {
			_, err = s.Park(ctx)
		}
		if err != nil {
			panic(err)
		}
		fmt.Println(s.Name())
	}
}

// TestSessionParkKilled: sessions whose Park had returned when the process was killed continue in another process with the same bits, from
// the disk.
func TestSessionParkKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a process")
	}
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), parkTest+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var names []string
	for lines := bufio.NewScanner(out); lines.Scan(); names = append(names, lines.Text()) {
		if len(names) == 6 {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = cmd.Wait() // killed
	if len(names) < 6 {
		t.Fatalf("the process has parked %v", names)
	}
	plain := open(t, coppice.Config{})
	m, err := openTiers(1024, stores.Config{Disk: dir, DiskBytes: 64 << 20, HostBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for i, name := range names {
		s, err := m.ResumeSession(context.Background(), coppice.SessionOptions{Name: name, Chat: coppice.ChatOptions{Request: coppice.Request{MaxTokens: 8, Digest: true}}})
		if err != nil || s.Len() != 305 || !slices.Equal(s.Tokens()[:300], words(uint64(i), 300)) {
			t.Fatalf("session %s: %v", name, err)
		}
		r, err := s.Chat(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		req := s.Request()
		req.Tokens = r.Tokens[:r.PromptTokens]
		want, err := plain.Text(context.Background(), req)
		if err != nil || !slices.Equal(want.Tokens, r.Tokens) || want.LogitDigest == 0 || want.LogitDigest != r.LogitDigest {
			t.Errorf("session %s: %v, tokens %v and digest %x, want %v and %x", name, err, r.Tokens, r.LogitDigest, want.Tokens, want.LogitDigest)
		}
		if r.CachedByTier[kv.TierDisk] < 288 || r.ComputedTokens > r.PromptTokens-304+16 {
			t.Errorf("session %s: %v cached, %d computed", name, r.CachedByTier, r.ComputedTokens)
		}
	}
}

// TestSessionWorld: agents fork, park, resume and release sessions at random, in a pool for a part of their tokens. Each turn has the bits of a plain
// request, and in the end nothing is left.
func TestSessionWorld(t *testing.T) {
	plain := open(t, coppice.Config{})
	m, err := openTiers(1536, stores.Config{Disk: t.TempDir(), DiskBytes: 64 << 20, HostBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	ctx, rng := context.Background(), rand.New(rand.NewPCG(11, 3))
	var all []*coppice.Session
	parks, forks := 0, 0
	for step := range 120 {
		if len(all) == 0 || rng.IntN(8) == 0 && len(all) < 12 {
			s := begin(t, m.Node, coppice.SessionOptions{Pin: rng.IntN(2) == 0})
			say(t, plain, s, coppice.Request{Tokens: words(uint64(step/20), 100+rng.IntN(100)), MaxTokens: 1 + rng.IntN(4)})
			all = append(all, s)
			continue
		}
		i := rng.IntN(len(all))
		s := all[i]
		switch k := rng.IntN(10); {
		case k < 4 && s.Len() < 600:
			say(t, plain, s, coppice.Request{Tokens: words(rng.Uint64(), 1+rng.IntN(40)), MaxTokens: 1 + rng.IntN(4)})
		case k < 6:
			if len(all) < 12 {
				all = append(all, fork(t, s))
				forks++
			}
		case k < 9:
			if _, err := s.Park(ctx); err != nil {
				t.Fatalf("step %d: %v", step, err)
			}
			if parks++; rng.IntN(2) == 0 {
				if err := s.Resume(ctx); err != nil {
					t.Fatal(err)
				}
			}
		default:
			s.Release()
			all = slices.Delete(all, i, i+1)
		}
	}
	if parks < 15 || forks < 8 {
		t.Errorf("%d parks and %d forks", parks, forks)
	}
	for _, s := range all {
		s.Release()
	}
	if left, err := m.ParkedSessions(); err != nil || len(left) > 0 {
		t.Errorf("names are left: %v, %v", left, err)
	}
	if err := m.FlushCache(ctx); err != nil {
		t.Error(err)
	}
	if tree, err := m.Tree(ctx, coppice.TreeQuery{}); err != nil || len(tree.Nodes) > 0 {
		t.Errorf("%v, %d nodes are left", err, len(tree.Nodes))
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if st, err := m.Stats(ctx); err != nil || st.LeakedPages != 0 {
		t.Errorf("%v, %d pages leaked", err, st.LeakedPages)
	}
}

// TestSessionAgents: 16 agents, each with 3 sub-agents that fork it, over one prompt of 4,000 tokens compute at most 1.05 times what
// an ideal cache would.
func TestSessionAgents(t *testing.T) {
	m, err := local.Open(nano, local.Options{KVTokens: 32768, Node: coppice.Config{}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	ctx, system := context.Background(), words(1, 3990)
	type turn struct{ ideal, computed int }
	turns := make(chan turn, 200)
	run := func(s *coppice.Session, tokens []kv.Token, ideal int) {
		r, err := s.Text(ctx, coppice.Request{Tokens: tokens, MaxTokens: 3, IgnoreEOS: true})
		if err != nil {
			t.Error(err)
		}
		turns <- turn{ideal, r.ComputedTokens}
	}
	root := begin(t, m.Node, coppice.SessionOptions{})
	run(root, system, len(system))
	done := make(chan struct{})
	for a := range uint64(16) {
		agent := fork(t, root)
		go func() {
			defer func() { done <- struct{}{} }()
			run(agent, words(100+a, 30), 31) // and the last token of the turn before, whose KV was not computed
			subs := make(chan struct{})
			for b := range uint64(3) {
				sub := fork(t, agent)
				go func() {
					run(sub, words(1000+10*a+b, 20), 21)
					run(sub, words(2000+10*a+b, 20), 21)
					sub.Release()
					subs <- struct{}{}
				}()
			}
			for range 3 {
				<-subs
			}
			run(agent, words(3000+a, 30), 31)
			agent.Release()
		}()
	}
	for range 16 {
		<-done
	}
	close(turns)
	ideal, computed := 0, 0
	for x := range turns {
		ideal, computed = ideal+x.ideal, computed+x.computed
	}
	t.Logf("computed %d prompt tokens, ideal %d: %.3f", computed, ideal, float64(computed)/float64(ideal))
	if computed*100 > ideal*105 {
		t.Errorf("%d prompt tokens were computed, %d at best", computed, ideal)
	}
}
