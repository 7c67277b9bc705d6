package members

import (
	"cmp"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/events/zmq"
)

// eventSource is the place where a rank of a worker that is not Coppice publishes its events, as the worker itself says.
type eventSource struct {
	endpoint, replay string // tcp://host:port; replay is "" if there is none
	topic            string // "": any
}

// maxMetrics bounds the metrics that are read of a worker, in bytes.
const maxMetrics = 4 << 20

// maxRanks bounds the ranks of a worker.
const maxRanks = 1024

// learnForeign asks a worker that is not Coppice for what vLLM and SGLang say of themselves: where their events are, the
// size of their blocks and of their pool. An unknown path or answer means that the worker says nothing. If it breaks off
// the connection at one of the paths, what it said before holds. The error is that of a probe that can't go on.
func (f *Fleet) learnForeign(ctx context.Context, m *Member, s *description) error {
	host, before := m.url.Hostname(), m.described()
	events, err := f.ask(ctx, m, "/kv_event_sources", maxAnswer)
	if err != nil {
		return err
	}
	sources, isVLLM := vllmSources(events.body, host)
	s.sources = sources
	metrics, err := f.ask(ctx, m, "/metrics", maxMetrics)
	if err != nil {
		return err
	}
	var info answer
	if !vllmCache(metrics.body, s.card) && !isVLLM {
		if info, err = f.ask(ctx, m, "/server_info", maxAnswer); err != nil {
			return err
		}
		if info.body != nil {
			s.sources = sglangInfo(info.body, host, s.card)
		}
	}
	if info.broke || events.broke && info.body == nil {
		s.sources = before.sources
	}
	if known := before.card; known != nil && (info.broke || metrics.broke) {
		s.card.HitTokens = cmp.Or(s.card.HitTokens, known.HitTokens)
		s.card.PoolTokens = cmp.Or(s.card.PoolTokens, known.PoolTokens)
		s.card.MaxRunning = cmp.Or(s.card.MaxRunning, known.MaxRunning)
	}
	if at := m.cfg.Events; s.card.HitTokens == 0 && (len(s.sources) > 0 || at != "" && at != noEvents) {
		s.card.HitTokens = f.cfg.BlockTokens // such engines have blocks, of a size that they do not tell
	}
	return nil
}

// answer is a worker's answer at a path that it may not have.
type answer struct {
	body  []byte // nil unless the status is 200
	broke bool   // it broke off the connection, as some servers do at paths that they do not know
}

// ask requests a document of a worker that may not have it. The error is one that is not the worker's fault, or the end of ctx.
func (f *Fleet) ask(ctx context.Context, m *Member, path string, most int64) (answer, error) {
	status, body, err := f.get(ctx, m, path, most)
	switch {
	case err != nil && (ctx.Err() != nil || Exhausted(err)):
		return answer{}, err
	case err != nil:
		return answer{broke: true}, nil
	case status != http.StatusOK:
		return answer{}, nil
	}
	return answer{body: body}, nil
}

// vllmSource is vLLM's description of the publisher of a rank.
type vllmSource struct {
	Rank      int    `json:"data_parallel_rank"`
	Publisher string `json:"publisher"`
	Endpoint  string `json:"endpoint"`
	Replay    string `json:"replay_endpoint"`
	Topic     string `json:"topic"`
}

// vllmSources reads vLLM's answer at /kv_event_sources. vLLM 0.32 answers with an object of KVEventsConfig by data-parallel
// rank (vllm/entrypoints/serve/instrumentator/basic.py), other versions with a list of objects that name their rank
// (vllm/entrypoints/serve/kv_events/api_router.py, of pull request 55844), a draft of that with the list under the key
// "sources". host takes the place of wildcards. ok is false if the answer is something else. A worker that publishes
// nothing has no ranks there, or ranks whose publisher is "null".
func vllmSources(body []byte, host string) (all []eventSource, ok bool) {
	var list []vllmSource
	if json.Unmarshal(body, &list) != nil {
		var object map[string]json.RawMessage
		if json.Unmarshal(body, &object) != nil {
			return nil, false
		}
		for key, text := range object {
			var one vllmSource
			rank, err := strconv.Atoi(key)
			if key == "sources" && json.Unmarshal(text, &list) == nil {
				continue
			}
			if err != nil || json.Unmarshal(text, &one) != nil {
				return nil, false
			}
			one.Rank = rank
			list = append(list, one)
		}
	}
	if len(list) > maxRanks {
		return nil, false
	}
	slices.SortStableFunc(list, func(a, b vllmSource) int { return cmp.Compare(a.Rank, b.Rank) })
	for _, s := range list {
		at := eventSource{endpoint: reachable(s.Endpoint, host), replay: reachable(s.Replay, host), topic: s.Topic}
		if at.endpoint == "" || s.Publisher != "" && s.Publisher != "zmq" || len(at.topic) > maxTopic {
			return nil, true // a rank without events: all are guessed
		}
		all = append(all, at)
	}
	return all, true
}

// maxTopic is the longest topic that is taken from a worker, in bytes.
const maxTopic = 1 << 10

// reachable returns a ZMQ endpoint as seen from here: host takes the place of a wildcard. It returns "" for what is no
// address over TCP with a port.
func reachable(endpoint, host string) string {
	address, ok := strings.CutPrefix(endpoint, "tcp://")
	at, port, err := net.SplitHostPort(address)
	if n, err2 := strconv.ParseUint(port, 10, 16); !ok || err != nil || err2 != nil || n == 0 {
		return ""
	}
	switch at {
	case "", "*", "0.0.0.0", "::":
		at = host
	}
	return "tcp://" + net.JoinHostPort(at, port)
}

// cacheInfo is the metric whose labels are vLLM's CacheConfig; its value says nothing.
const cacheInfo = "vllm:cache_config_info{"

// vllmCache reads the size of blocks and of a rank's pool from vLLM's metrics into c, where these are unknown. It returns
// false if the metrics are not vLLM's.
func vllmCache(metrics []byte, c *card.Card) bool {
	_, line, found := strings.Cut("\n"+string(metrics), "\n"+cacheInfo)
	if !found {
		return false
	}
	line, _, _ = strings.Cut(line, "\n")
	block, blocks, tokens := number(line, "block_size"), number(line, "num_gpu_blocks"), number(line, "kv_cache_size_tokens")
	if block > 0 && block <= 1<<20 {
		c.HitTokens = block
		if tokens == 0 && blocks <= 1<<32 {
			tokens = block * blocks
		}
	}
	if c.PoolTokens == 0 && tokens <= 1<<40 {
		c.PoolTokens = tokens
	}
	return true
}

// number returns the value of a label in a line of metrics, 0 if it is no positive number of 52 bits.
func number(line, label string) int {
	_, value, _ := strings.Cut(line, label+`="`)
	value, _, _ = strings.Cut(value, `"`)
	n, err := strconv.ParseUint(value, 10, 52)
	if err != nil {
		return 0
	}
	return int(n)
}

// sglangInfo reads SGLang's answer at /server_info (describe_kv_events_publisher in its runtime_context.py) into c, and
// returns the sources of its events. A rank's ports are higher by its number. The place for replays is only in the
// server's own arguments, which the answer repeats.
func sglangInfo(body []byte, host string, c *card.Card) (all []eventSource) {
	var info struct {
		PageSize   int `json:"page_size"`
		PoolTokens int `json:"max_total_num_tokens"`
		MaxRunning int `json:"max_running_requests"`
		Config     any `json:"kv_events_config"` // a text with JSON, if any
		Events     *struct {
			Publisher string `json:"publisher"`
			Host      string `json:"endpoint_host"`
			Port      int    `json:"endpoint_port_base"`
			Topic     string `json:"topic"`
			BlockSize int    `json:"block_size"`
			Ranks     int    `json:"dp_size"`
		} `json:"kv_events"`
	}
	if json.Unmarshal(body, &info) != nil {
		return nil
	}
	e := info.Events
	if e != nil && e.BlockSize > 0 {
		info.PageSize = e.BlockSize
	}
	if info.PageSize > 0 && info.PageSize <= 1<<20 {
		c.HitTokens = info.PageSize
	}
	if c.PoolTokens == 0 && info.PoolTokens > 0 && info.PoolTokens <= 1<<40 {
		c.PoolTokens = info.PoolTokens
	}
	if c.MaxRunning == 0 && info.MaxRunning > 0 && info.MaxRunning <= 1<<40 {
		c.MaxRunning = info.MaxRunning
	}
	if e == nil || e.Publisher != "zmq" || e.Ranks > maxRanks || len(e.Topic) > maxTopic {
		return nil
	}
	var config struct {
		Replay string `json:"replay_endpoint"`
	}
	if text, ok := info.Config.(string); ok {
		_ = json.Unmarshal([]byte(text), &config) // without it there are no replays
	}
	replay := reachable(config.Replay, host)
	for rank := range max(1, e.Ranks) {
		at := eventSource{endpoint: reachable("tcp://"+net.JoinHostPort(e.Host, strconv.Itoa(e.Port+rank)), host), topic: e.Topic}
		if at.endpoint == "" {
			return nil
		}
		if replay != "" {
			at.replay, _ = zmq.RankEndpoint(replay, uint32(rank)) // "" if there is no such port
		}
		all = append(all, at)
	}
	return all
}
