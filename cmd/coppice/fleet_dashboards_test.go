package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestFleetDashboards checks that docs/metrics.md lists every metric of a server and of a
// router, and that a Prometheus which scrapes both has data for every panel of both
// dashboards.
func TestFleetDashboards(t *testing.T) {
	t.Parallel()
	broker := startNATS(t, at(freePorts(t, 1)))
	var workers []*process
	for i := range 2 {
		workers = append(workers, startCoppice(t, fmt.Sprint("worker ", i), "serve", "--addr", "127.0.0.1:0", "--backend", "sim", "--name", fmt.Sprint("w", i),
			"--kv-tokens", "2048", "--max-running", "2", "--kv-host", "16MiB", "--kv-disk", t.TempDir()+":64MiB", "--kv-write", "through", "--publish", broker.url))
	}
	router := startCoppice(t, "router", "route", "--addr", "127.0.0.1:0", "--worker", workers[0].url+","+workers[1].url, "--buckets", "2",
		"--events", broker.url, "--replicas", broker.url, "--probe-every", "100ms")
	untilFleet(t, router, map[string]string{workers[0].url: "healthy", workers[1].url: "healthy"})
	load := startDashboardLoad(t, router.url, workers[0].url)
	t.Run("docs", func(t *testing.T) { metricsDocumented(t, workers[0], router) })
	t.Run("panels", func(t *testing.T) { panelsHaveData(t, append(workers, router)) })
	load()
}

// dashboards are the Grafana dashboards.
var dashboards = []string{"../../docs/grafana/server.json", "../../docs/grafana/router.json"}

// startDashboardLoad sends requests that move every metric, until stop is called: prompts
// that do not fit the device, output formats, and errors.
func startDashboardLoad(t *testing.T, router, worker string) (stop func()) {
	done := make(chan struct{})
	ended := make(chan error)
	const clients = 4
	for c := range clients {
		go func() {
			for n := c; ; n += clients {
				select {
				case <-done:
					ended <- nil
					return
				default:
				}
				if err := dashboardAsk(router, worker, n); err != nil {
					ended <- err
					return
				}
			}
		}()
	}
	return func() {
		t.Helper()
		close(done)
		for range clients {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
}

// dashboardAsk sends the nth request to the router, or to the worker directly, and reads the
// answer. It returns an error unless the request succeeds or fails as it should.
func dashboardAsk(router, worker string, n int) error {
	l := tierLoad{tokens: 600}
	body := map[string]any{"prompt": l.prompt(n % 24), "max_tokens": 16, "temperature": 0, "ignore_eos": true, "stream": n%2 == 0}
	at := router
	switch n % 8 {
	case 5:
		body = map[string]any{"prompt": "x", "max_tokens": 8, "regex": "[a-z]+"}
	case 6:
		body["model"] = "unknown"
	case 7:
		body["model"], at = "unknown", worker
	}
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	res, err := asker.Post(at+"/v1/completions", "application/json", strings.NewReader(string(b)))
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if want := n%8 < 6; err == nil && (res.StatusCode == http.StatusOK) != want {
		err = fmt.Errorf("request %d: %s: %s", n, res.Status, text)
	}
	return err
}

var sampleName = regexp.MustCompile(`^([a-z0-9_:]+?)(?:_bucket|_sum|_count)?(?:\{(.*)\})? `)

// metricLines returns a table of /metrics: name, type, labels and help of each of the
// project's metrics.
func metricLines(text string) map[string]string {
	help, kind, lines := map[string]string{}, map[string]string{}, map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if of, ok := strings.CutPrefix(line, "# HELP "); ok {
			name, what, _ := strings.Cut(of, " ")
			help[name] = what
			continue
		}
		if of, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, what, _ := strings.Cut(of, " ")
			kind[name] = what
			continue
		}
		m := sampleName.FindStringSubmatch(line)
		if m == nil || !strings.HasPrefix(m[1], "coppice_") {
			continue
		}
		var labels []string
		for _, l := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(m[2], -1) {
			if l[1] != "le" && l[1] != "model_name" {
				labels = append(labels, l[1])
			}
		}
		name := m[1]
		for _, suffix := range []string{"", "_count", "_sum"} { // a plain name may end in _count or _sum too
			if kind[name+suffix] != "" {
				name += suffix
				break
			}
		}
		lines[name] = fmt.Sprintf("| `%s` | %s | %s | %s |", name, kind[name], strings.Join(labels, ", "), help[name])
	}
	return lines
}

// metricsDocumented compares /metrics with the tables of docs/metrics.md. It needs load:
// some metrics exist only then.
func metricsDocumented(t *testing.T, server, router *process) {
	doc, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for s := bufio.NewScanner(strings.NewReader(string(doc))); s.Scan(); {
		if m := regexp.MustCompile("^\\| `(coppice_\\w+)` \\|").FindStringSubmatch(s.Text()); m != nil {
			documented[m[1]] = s.Text()
		}
	}
	for _, file := range dashboards {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		names := regexp.MustCompile(`coppice_\w+`).FindAllString(string(text), -1)
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			if documented[name] == "" && documented[strings.TrimSuffix(name, "_bucket")] == "" {
				t.Errorf("%s asks for %s, which docs/metrics.md does not have", file, name)
			}
		}
	}
	there := map[string]string{}
	until(t, "docs/metrics.md has what neither a server nor a router has", func() string {
		for _, p := range []*process{server, router} {
			for name, line := range metricLines(p.page("/metrics")) {
				there[name] = line
			}
		}
		var lacks []string
		for name, line := range documented {
			if there[name] == "" {
				lacks = append(lacks, line)
			}
		}
		return strings.Join(lacks, "\n")
	})
	for name, line := range there {
		if documented[name] != line {
			t.Errorf("docs/metrics.md lacks\n%s", line)
		}
	}
}

// panelsHaveData runs each query of each panel of both dashboards on a Prometheus that
// scrapes the processes.
func panelsHaveData(t *testing.T, scraped []*process) {
	path, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("no prometheus here: the dashboards' queries are not asked (Debian: apt-get install prometheus)")
	}
	dir, address := t.TempDir(), at(freePorts(t, 1))
	targets := ""
	for _, p := range scraped {
		targets += strconv.Quote(strings.TrimPrefix(p.url, "http://")) + ", "
	}
	config := "global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs:\n- job_name: coppice\n  static_configs:\n  - targets: [" + targets + "]\n"
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	said := &transcript{}
	cmd := exec.Command(path, "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Errorf("prometheus: %v\n%s", err, said)
		}
	}()
	queries := 0
	for _, file := range dashboards {
		for title, exprs := range panelsOf(t, file) {
			for _, expr := range exprs {
				queries++
				expr = strings.NewReplacer("$__rate_interval", "10s", "$model", ".*", "$router", ".*").Replace(expr)
				until(t, file+", "+title, func() string { return noData("http://"+address, expr) })
			}
		}
	}
	t.Logf("%d queries have data", queries)
}

// panelsOf returns the queries of a dashboard by the titles of its panels.
func panelsOf(t *testing.T, file string) map[string][]string {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	panels := map[string][]string{}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			panels[p.Title] = append(panels[p.Title], target.Expr)
		}
	}
	return panels
}

// noData runs the query expr on a Prometheus server and returns "" if the result has a number,
// otherwise a text about the result or the error.
func noData(prometheus, expr string) string {
	res, err := asker.Get(prometheus + "/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	var answer struct {
		Status, Error string
		Data          struct{ Result []struct{ Value [2]any } }
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return err.Error()
	}
	for _, r := range answer.Data.Result {
		text, _ := r.Value[1].(string)
		if v, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(v) {
			return ""
		}
	}
	return fmt.Sprintf("%s: %s %s %v", expr, answer.Status, answer.Error, answer.Data.Result)
}
