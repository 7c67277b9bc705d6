package server

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/internal/figures"
	"github.com/coppice-llm/coppice/mempool/stores"
	"github.com/coppice-llm/coppice/server/view"
)

// TestFiguresAgree: every figure has one value on the page, in /v1/cache/stats and in /metrics,
// or a documented reason for its absence.
func TestFiguresAgree(t *testing.T) {
	b := start(t, setup{
		CPU: cpu.Config{KVTokens: 512, PageTokens: 16}, Node: coppice.Config{Tiers: coppice.Tiers{Open: stores.Config{HostBytes: 4 << 20, ExtentPages: 4}.Open}},
		Server: Config{Page: true},
	})
	for n := range 8 { // four prompts fill the pool; the second time all are in host memory
		rng := rand.New(rand.NewPCG(uint64(n%4), 1))
		prompt, err := json.Marshal(rng.Perm(200)[:190])
		b.ok(err)
		b.ask("/v1/completions", fmt.Sprintf(`{"prompt":%s,"max_tokens":2,"ignore_eos":true}`, prompt))
	}
	b.quiet()
	var page, api map[string]any
	var samples map[string]float64
	for settled := false; !settled; { // writes to host memory may still end between two of the looks
		before := b.stats().Tiers
		samples, page, api = b.samples(), nil, nil
		b.ok(json.Unmarshal(b.do("GET", "/v1/cache/stats", "").body, &api))
		b.ok(json.Unmarshal(b.do("GET", "/v1/view", "").body, &page))
		settled = reflect.DeepEqual(before, b.stats().Tiers)
	}
	page["tiers"] = page["pool"].(map[string]any)["tiers"].([]any)[1:]
	compared, set := 0, 0
	for _, f := range figuresOf(reflect.TypeFor[view.Stats](), "") {
		if strings.HasPrefix(f.path, "tenants.") || f.why != "" && f.api == "" && f.metric == "" {
			continue // no request is open; shown on the page only
		}
		values := map[string]any{"page": at(page, f.path)}
		tier := strings.HasPrefix(f.path, "tiers.")
		switch {
		case f.api == "":
		case tier:
			values["/v1/cache/stats"] = at(api, "tiers."+f.api)
		default:
			values["/v1/cache/stats"] = at(api, f.api)
		}
		if f.metric != "" {
			values["/metrics"] = inMetrics(samples, f, tier)
		}
		if values["page"] == nil && tier { // the page omits zeros of tiers
			values["page"] = 0.0
		}
		for face, v := range values {
			if v == nil || fmt.Sprint(v) != fmt.Sprint(values["page"]) {
				t.Errorf("%s is %v: %s has %v", f.path, values, face, v)
			}
		}
		if compared++; fmt.Sprint(values["page"]) != "0" {
			set++
		}
	}
	if compared < 60 || set < 30 {
		t.Errorf("%d figures compared, %d of them not 0", compared, set)
	}
}

// figure is a field of view.Stats or of a struct in it, with its tags; labels are like
// tier="device".
type figure struct {
	path, api, metric, by, why string
	labels                     []string
}

// figuresOf returns the figures of the struct t, which is at this path of the page's JSON. The
// figures of a list's elements are returned once.
func figuresOf(t reflect.Type, path string) (all []figure) {
	name := func(tag string) string {
		name, _, _ := strings.Cut(tag, ",")
		return strings.TrimPrefix(name, "-")
	}
	for i := range t.NumField() {
		sf := t.Field(i)
		tag, in := sf.Tag, sf.Type
		onPage := name(tag.Get("json"))
		f := figure{api: name(cmp.Or(tag.Get("api"), onPage)), metric: name(tag.Get("metric")), by: tag.Get("by"), why: tag.Get("why")}
		f.path = strings.Trim(path+"."+cmp.Or(onPage, f.api), ".")
		if in.Kind() == reflect.Slice {
			in = in.Elem()
		}
		switch {
		case in.Kind() == reflect.Struct && f.why == "":
			all = append(all, figuresOf(in, f.path)...)
		case tag.Get("label") == "":
			for pair := range strings.FieldsFuncSeq(tag.Get("labels"), func(r rune) bool { return r == ',' }) {
				f.labels = append(f.labels, strings.Replace(pair, "=", `="`, 1)+`"`)
			}
			all = append(all, f)
		}
	}
	return all
}

// inMetrics returns the value of f in samples; for a figure with a label, its values by label; nil
// if samples do not have it. tier says that f is a figure of a tier.
func inMetrics(samples map[string]float64, f figure, tier bool) any {
	labels := append(f.labels, `model_name="nano"`)
	switch {
	case tier:
		labels = append(labels, cmp.Or(f.by, "tier")+`="host"`)
	case f.by != "":
		all := map[string]any{}
		for name, v := range samples {
			if rest, ok := strings.CutPrefix(name, "coppice_"+f.metric+"{"); ok {
				_, value, _ := strings.Cut(rest, f.by+`="`)
				value, _, _ = strings.Cut(value, `"`)
				all[value] = v
			}
		}
		return all
	}
	slices.Sort(labels)
	if v, ok := samples["coppice_"+f.metric+"{"+strings.Join(labels, ",")+"}"]; ok {
		return v
	}
	return nil
}

// at returns the value in v at a path, whose names are separated by dots; in a list it takes the
// first element.
func at(v any, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		if list, ok := v.([]any); ok && len(list) > 0 {
			v = list[0]
		}
		of, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = of[name]
	}
	return v
}

var sampleLine = regexp.MustCompile(`(?m)^([a-z_:0-9]+\{.*\}) (\S+)$`)

// samples returns the samples of /metrics.
func (b *bed) samples() map[string]float64 {
	b.Helper()
	all := map[string]float64{}
	for _, m := range sampleLine.FindAllStringSubmatch(b.metricsText(), -1) {
		var v float64
		if _, err := fmt.Sscan(m[2], &v); err == nil {
			all[m[1]] = v
		}
	}
	return all
}

// TestPublisherFigures: every count of the publisher is a metric.
func TestPublisherFigures(t *testing.T) {
	if left := figures.Copy(new(publisher), events.PublisherMetrics{}); left != nil {
		t.Errorf("no metric has %q", left)
	}
}

// TestMetricAliases: metrics that vLLM has too also appear under its names, with the same
// values, unless aliases are off.
func TestMetricAliases(t *testing.T) {
	b := start(t, setup{})
	b.ask("/v1/completions", `{"prompt":"What is light?","max_tokens":5,"ignore_eos":true}`)
	b.quiet()
	b.client.CloseIdleConnections()
	samples, aliases := b.samples(), map[string]bool{}
	for name, v := range samples {
		if alias, ok := strings.CutPrefix(name, "vllm:"); ok {
			if own, ok := samples["coppice_"+alias]; !ok || own != v {
				t.Errorf("%s is %v, coppice's %v, %v", name, v, own, ok)
			}
			alias, _, _ = strings.Cut(alias, "{")
			aliases[alias] = true
		}
	}
	for _, want := range []string{ // read by endpoint pickers and vLLM's dashboard
		"num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "num_preemptions_total", "prompt_tokens_total", "generation_tokens_total", "request_success_total",
		"prefix_cache_queries_total", "prefix_cache_hits_total", "time_to_first_token_seconds_bucket", "inter_token_latency_seconds_bucket", "e2e_request_latency_seconds_bucket",
		"request_time_per_output_token_seconds_count", "request_queue_time_seconds_sum", "request_prompt_tokens_bucket", "request_generation_tokens_bucket",
	} {
		if !aliases[want] {
			t.Errorf("no vllm:%s", want)
		}
	}
	b = start(t, setup{Server: Config{MetricAliases: NoNames}})
	if text := b.metricsText(); strings.Contains(text, "vllm:") || !strings.Contains(text, "coppice_up") {
		t.Error("names of vLLM though they are off")
	}
	if _, err := New(Config{Node: b.node, Model: "nano", MetricAliases: "triton"}); err == nil || !strings.Contains(err.Error(), "triton") {
		t.Errorf("%v", err)
	}
}
