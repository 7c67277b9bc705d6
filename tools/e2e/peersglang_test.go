//go:build unix

package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// sglangCache plays the part of SGLang's radix tree: it stores and evicts blocks, and SGLang's own
// publisher sends the events.
type sglangCache struct {
	t      *testing.T
	in     io.WriteCloser
	said   *bufio.Scanner
	hashes map[string]int64 // of the blocks held, by content: the salt and all tokens up to the block's end
	kids   map[string]int   // number of blocks held after each
	rng    *rand.Rand
}

const sglangBlock = 16

// sglangPrompt is a prompt and its salt.
type sglangPrompt struct {
	tokens []kv.Token
	salt   string
}

// content identifies the first blocks of a prompt.
func (p sglangPrompt) content(blocks int) string {
	return fmt.Sprint(p.salt, p.tokens[:blocks*sglangBlock])
}

// publish hands a batch of events to SGLang's publisher.
func (c *sglangCache) publish(events ...any) {
	c.t.Helper()
	line, err := json.Marshal(map[string]any{"batch": events})
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.in.Write(append(line, '\n')); err != nil {
		c.t.Fatal(err)
	}
	if !c.said.Scan() || c.said.Text() != strconv.Itoa(len(events)) {
		c.t.Fatalf("the publisher answers %q to %s", c.said.Text(), line)
	}
}

// stored is the event of blocks [from, to) of a prompt. SGLang's fields have no omitted values.
func (c *sglangCache) stored(p sglangPrompt, from, to int, medium string) map[string]any {
	e := map[string]any{"type": "BlockStored", "parent_block_hash": nil, "token_ids": p.tokens[from*sglangBlock : to*sglangBlock], "block_size": sglangBlock, "lora_id": nil}
	if from > 0 {
		e["parent_block_hash"] = c.hashes[p.content(from)]
	}
	if medium != "" {
		e["medium"] = medium
	}
	if p.salt != "" {
		e["cache_salt"] = p.salt
	}
	var hashes []int64
	for i := from; i < to; i++ {
		hashes = append(hashes, c.hashes[p.content(i+1)])
	}
	e["block_hashes"] = hashes
	return e
}

// store adds the blocks of a prompt that are missing.
func (c *sglangCache) store(p sglangPrompt) {
	from, to := c.held(p), len(p.tokens)/sglangBlock
	if from == to {
		return
	}
	for i := from; i < to; i++ {
		c.hashes[p.content(i+1)] = int64(c.rng.Uint64()) // signed, as SGLang's are
		if i > 0 {
			c.kids[p.content(i)]++
		}
	}
	c.publish(c.stored(p, from, to, "GPU"))
}

// evict removes up to n blocks from the end of a prompt, unless others follow.
func (c *sglangCache) evict(p sglangPrompt, n int) {
	var gone []int64
	for i := len(p.tokens) / sglangBlock; i > 0 && len(gone) < n; i-- {
		at := p.content(i)
		hash, held := c.hashes[at]
		if held && c.kids[at] > 0 {
			break
		}
		if held {
			delete(c.hashes, at)
			gone = append(gone, hash)
			if i > 1 {
				c.kids[p.content(i-1)]--
			}
		}
	}
	if len(gone) > 0 {
		c.publish(map[string]any{"type": "BlockRemoved", "block_hashes": gone, "medium": "GPU"})
	}
}

// held returns the number of leading blocks of a prompt that the cache holds.
func (c *sglangCache) held(p sglangPrompt) (n int) {
	for n < len(p.tokens)/sglangBlock {
		if _, ok := c.hashes[p.content(n+1)]; !ok {
			break
		}
		n++
	}
	return n
}

// startSGLang starts SGLang's publisher, and a server that the gateway takes for SGLang.
func startSGLang(t *testing.T, dir string) (*sglangCache, foreignWorker) {
	t.Helper()
	ports := freePorts(t, 2)
	cmd := exec.Command(filepath.Join(dir, "bin", "python"), filepath.Join("peers", "sglang.py"), strconv.Itoa(ports[0]), strconv.Itoa(ports[1]))
	log := &output{more: make(chan struct{}, 1)}
	cmd.Stderr = log
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("SGLang's publisher ended with %v:\n%s", err, log)
		}
	})
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/health":
		case "/v1/models":
			io.WriteString(w, `{"object":"list","data":[{"id":"nano","object":"model","owned_by":"sglang","max_model_len":4096}]}`)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(engine.Close)
	c := &sglangCache{t: t, in: in, said: bufio.NewScanner(out), hashes: map[string]int64{}, kids: map[string]int{}, rng: rand.New(rand.NewPCG(5, 5))}
	c.publish([]any{}...) // the publisher has started
	return c, foreignWorker{Name: "sglang", URL: engine.URL, Events: local("tcp", ports[0]), Replay: local("tcp", ports[1])}
}

// TestPeerSGLang: the gateway's index equals the cache whose events SGLang's own publisher sends, with
// salts, evictions and a flush.
func TestPeerSGLang(t *testing.T) {
	c, worker := startSGLang(t, peerDir(t, "sglang"))
	f := routeForeign(t, sglangBlock, nano, []foreignWorker{worker})
	var prompts []sglangPrompt
	same := func() (sum int) {
		t.Helper()
		for i, p := range prompts {
			asked := append(slices.Clone(p.tokens), 100)
			more := map[string]any{}
			if p.salt != "" {
				more["cache_salt"] = p.salt
			}
			want := c.held(p)
			f.until(fmt.Sprintf("the gateway knows the %d blocks of prompt %d, salt %q", want, i, p.salt), func() bool { return f.overlaps(asked, more)["sglang"] == want })
			sum += want
			if p.salt != "" {
				if n := f.overlaps(asked, nil)["sglang"]; n != c.held(sglangPrompt{tokens: p.tokens}) {
					t.Fatalf("prompt %d of another salt: %d blocks are found without the salt", i, n)
				}
			}
		}
		return sum
	}
	most := 0
	for round := range 12 {
		for range 5 {
			p := sglangPrompt{tokens: randomTokens(c.rng, sglangBlock*(1+c.rng.IntN(8)))}
			if c.rng.IntN(3) == 0 {
				p.salt = []string{"acme", "zeta"}[c.rng.IntN(2)]
			}
			if len(prompts) > 0 && c.rng.IntN(2) == 0 {
				of := prompts[c.rng.IntN(len(prompts))]
				p = sglangPrompt{slices.Concat(of.tokens[:sglangBlock*c.rng.IntN(len(of.tokens)/sglangBlock+1)], p.tokens), of.salt}
			}
			prompts = append(prompts, p)
			c.store(p)
			c.evict(prompts[c.rng.IntN(len(prompts))], c.rng.IntN(6))
		}
		if round == 8 {
			clear(c.hashes)
			clear(c.kids)
			c.publish(map[string]any{"type": "AllBlocksCleared"})
		}
		most = max(most, same())
	}
	if most < 50 {
		t.Errorf("at most %d blocks were held", most)
	}
	t.Logf("%d prompts, at most %d blocks, alike", len(prompts), most)
	offloaded := sglangPrompt{tokens: randomTokens(c.rng, 4*sglangBlock)}
	c.store(offloaded)
	c.publish(c.stored(offloaded, 0, 4, "EXTERNAL"))
	c.evict(offloaded, 4)
	asked := append(slices.Clone(offloaded.tokens), 100)
	f.until("blocks outside of the device count in their tier", func() bool {
		tiers := f.tiers(asked, nil)["sglang"]
		return tiers["device"] == 0 && tiers["host"]+tiers["disk"]+tiers["shared"]+tiers["object"] == 4
	})
}
