package e2e

import (
	"net/http"

	"github.com/openai/openai-go/v3"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	prommodel "github.com/prometheus/common/model"
)

// figures holds the figures of /v1/cache/stats that tests check.
type figures struct {
	Requests       int `json:"requests"`
	Running        int `json:"running"`
	Waiting        int `json:"waiting"`
	PromptTokens   int `json:"prompt_tokens"`
	CachedTokens   int `json:"cached_tokens"`
	HeldPages      int `json:"held_pages"`
	ProtectedPages int `json:"protected_pages"`
	LeakedPages    int `json:"leaked_pages"`
	Nodes          int `json:"nodes"`
	TreeTokens     int `json:"tree_tokens"`
	Namespaces     int `json:"namespaces"`
}

func (p *process) stats(client openai.Client) (f figures) {
	p.t.Helper()
	if err := client.Get(p.t.Context(), "cache/stats", nil, &f); err != nil {
		p.t.Fatalf("/v1/cache/stats: %v", err)
	}
	return f
}

// quiet waits until no request runs or waits and no page is held, and checks that no page has leaked.
func (p *process) quiet(client openai.Client) {
	p.t.Helper()
	var f figures
	p.until("nothing runs", func() bool {
		f = p.stats(client)
		return f.Running == 0 && f.Waiting == 0 && f.HeldPages == 0
	})
	if f.LeakedPages != 0 {
		p.t.Errorf("pages are lost: %+v", f)
	}
}

// metrics returns all of /metrics, parsed as by a scraper.
func (p *process) metrics() map[string]*dto.MetricFamily {
	p.t.Helper()
	resp, err := p.http.Get(p.url + "/metrics")
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(prommodel.UTF8Validation)
	all, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		p.t.Fatalf("/metrics: status %d, %v", resp.StatusCode, err)
	}
	return all
}

// metric returns the sum of a family's values that have the given labels, as "tenant=acme".
func (p *process) metric(name string, labels ...string) float64 {
	p.t.Helper()
	family := p.metrics()[name]
	if family == nil {
		p.t.Fatalf("/metrics has no %s", name)
	}
	sum := 0.0
next:
	for _, m := range family.Metric {
		for _, want := range labels {
			found := false
			for _, l := range m.Label {
				found = found || l.GetName()+"="+l.GetValue() == want
			}
			if !found {
				continue next
			}
		}
		sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
	}
	return sum
}
