package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// TestServe checks that a server without a model, at any free port, greets, answers, and ends
// by a signal.
func TestServe(t *testing.T) {
	for _, tc := range []struct {
		args       []string
		name, note string
	}{
		{nil, "coppice-speak", "speaks like Newton's Opticks"},
		{[]string{"--backend", "sim", "--profile", "cpu2", "--api-key", "very-secret"}, "demo", "the text means nothing"},
	} {
		cmd := exec.Command(os.Args[0], append([]string{"serve", "--addr", "127.0.0.1:0"}, tc.args...)...)
		cmd.Env = append(os.Environ(), "COPPICE_TEST_MAIN=1")
		out, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer cmd.Process.Kill()
		lines := bufio.NewReader(out)
		greeting, url := "", ""
		for url == "" {
			line, err := lines.ReadString('\n')
			if greeting += line; err != nil {
				t.Fatalf("%v after %s", err, greeting)
			}
			if m := regexp.MustCompile(`look at (http://\S+/)`).FindStringSubmatch(line); m != nil {
				url = m[1]
			}
		}
		for _, want := range []string{tc.note, "curl http://127.0.0.1:", "serving " + tc.name + " on"} {
			if !strings.Contains(greeting, want) {
				t.Errorf("the greeting lacks %q: %s", want, greeting)
			}
		}
		if tc.args == nil {
			followGreeting(t, greeting)
		}
		for path, want := range map[string]string{"": "<html", "v1/models": `"` + tc.name + `"`, "ready": "ok"} {
			req, err := http.NewRequest("GET", url+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer very-secret")
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(res.Body)
			res.Body.Close()
			if res.StatusCode != 200 || !strings.Contains(string(body), want) {
				t.Errorf("/%s: %s %.200s", path, res.Status, body)
			}
		}
		http.DefaultClient.CloseIdleConnections()
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		rest, _ := io.ReadAll(lines)
		if err := cmd.Wait(); err != nil || strings.Contains(string(rest), "very-secret") {
			t.Errorf("%v: %s", err, rest)
		}
	}
}

// followGreeting sends the request that a server suggests, as a new user does, with several seeds. Each answer must have text.
func followGreeting(t *testing.T, greeting string) {
	t.Helper()
	m := regexp.MustCompile(`try  curl (\S+) .*-d '\{(.*)'\n`).FindStringSubmatch(greeting)
	if m == nil {
		t.Fatalf("no example of a request: %s", greeting)
	}
	for seed := range 8 {
		res, err := http.Post(m[1], "application/json", strings.NewReader(fmt.Sprintf(`{"seed": %d, %s`, seed, m[2])))
		if err != nil {
			t.Fatal(err)
		}
		var answer struct {
			Choices []struct {
				Text    string
				Message struct{ Content string }
			}
		}
		err = json.NewDecoder(res.Body).Decode(&answer)
		res.Body.Close()
		if err != nil || res.StatusCode != 200 || len(answer.Choices) != 1 || strings.TrimSpace(answer.Choices[0].Text+answer.Choices[0].Message.Content) == "" {
			t.Errorf("%s, seed %d: status %d, %v, answer %+v; want a text", m[1], seed, res.StatusCode, err, answer)
		}
	}
}

// TestServeSecondSignal checks that the first signal lets a request go on, and that the second
// one ends it with an error.
func TestServeSecondSignal(t *testing.T) {
	cmd := exec.Command(os.Args[0], "serve", "--addr", "127.0.0.1:0", "--backend", "sim", "--drain", "1h", "--no-page")
	cmd.Env = append(os.Environ(), "COPPICE_TEST_MAIN=1")
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	lines := bufio.NewReader(out)
	until := func(expr string) []string {
		t.Helper()
		for seen := ""; ; {
			line, err := lines.ReadString('\n')
			if seen += line; err != nil {
				t.Fatalf("%v after %s", err, seen)
			}
			if m := regexp.MustCompile(expr).FindStringSubmatch(line); m != nil {
				return m
			}
		}
	}
	url := until(`try  curl (http://[^/]+)/`)[1] + "/v1/completions"
	res, err := http.Post(url, "application/json", strings.NewReader(`{"prompt":"x","max_tokens":100000,"ignore_eos":true,"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	stream := bufio.NewReader(res.Body)
	signal := func() {
		t.Helper()
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	signal()
	until("draining")
	for range 20 { // the request still runs
		if _, err := stream.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	signal()
	until("ending at once")
	if rest, err := io.ReadAll(stream); err != nil || !strings.Contains(string(rest), "shutting_down") {
		t.Errorf("the stream ended with %q, %v", rest[max(0, len(rest)-200):], err)
	}
	io.Copy(io.Discard, lines)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// TestServeFewRequests checks that a request which can never be admitted is refused
// permanently rather than told to retry.
func TestServeFewRequests(t *testing.T) {
	w := startWorkerProcess(t, "--max-requests", "2")
	req, err := http.NewRequest("POST", w.url+"/v1/completions", strings.NewReader(`{"prompt":["x","y","z"],"max_tokens":1}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer very-secret")
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, _ := io.ReadAll(res.Body); res.StatusCode != 400 || !strings.Contains(string(body), "at most 2") {
		t.Errorf("%s %s", res.Status, body)
	}
}

// TestServeConfig checks that flags take precedence over the environment, and that over the
// file, and that each is named as the source.
func TestServeConfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "coppice.json")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"addr": ":1", "kv_tokens": 1000000, "policy": "lpm", "pprof": true, "drain": "5s", "max-body": "1MiB", "tenant": {"max-running": 2}, "tenants": {"acme": {"weight": 3, "cache-tokens": 4096, "cache-min-tokens": 64}}, "eviction": "slru", "cache-ttl": "1h"}`)
	t.Setenv("COPPICE_ADDR", ":2")
	t.Setenv("COPPICE_POLICY", "dlpm")
	t.Setenv("COPPICE_API_KEY", "very-secret")
	stdout, stderr, ok := command(t, "serve", "--config", file, "--policy", "hrrn", "--print-config")
	if !ok {
		t.Fatal(stderr)
	}
	for _, want := range []string{
		`addr +:2 +COPPICE_ADDR`, `kv-tokens +1000000 +` + regexp.QuoteMeta(file), `policy +hrrn +flag`, `pprof +true +/`, `drain +5s +/`, `max-body +1MiB +/`,
		`api-key +\(secret\) +COPPICE_API_KEY`, `max-conns +8192 +default`, `quantum +4096 +default`, `debt-age +10m0s +default`, `tenant +max-queued 0, max-running 2, weight 1`, `tenants.acme +.*weight 3, cache-tokens 4096, cache-min-tokens 64`, `eviction +slru +/`, `cache-ttl +1h0m0s +/`, `slru-hits +1 +default`,
	} {
		if !regexp.MustCompile(`(?m)^` + want).MatchString(stdout) {
			t.Errorf("no line %q in\n%s", want, stdout)
		}
	}
	if strings.Contains(stdout, "very-secret") {
		t.Error("the key is printed")
	}
	for _, tc := range []struct {
		text string
		args []string
		want []string
	}{
		{`{"adr": ":1", "polizei": 1}`, nil, []string{`"adr"`, `"polizei"`, "no such setting"}},
		{`{"addr": [1]}`, nil, []string{`"addr"`, "want a string"}},
		{`{"tenants": {"acme": {"wait": 1}}}`, nil, []string{`"acme"`, "wait"}},
		{`{"tenant": {"cache-tokens": 5}}`, nil, []string{"tenant", "by name"}},
		{`{"tenants": {"acme": {"cache-tokens": 32, "cache-min-tokens": 48}}}`, nil, []string{"acme", "cache-min-tokens is 48"}},
		{`{"tenant": {"cache-min-tokens": 5}}`, nil, []string{"tenant", "by name"}},
		{`{"tenants": {"acme": {"cache-tokens": -5}}}`, nil, []string{"acme", "cache-tokens is -5"}},
		{`{"tenants": {"acme": {"cache-tokens": 5}}}`, []string{"--addr", "127.0.0.1:0"}, []string{"at least a page"}},
		{`{}`, []string{"--eviction", "best"}, []string{"best", "cost-aware"}},
		{`{"addr": ":1"`, nil, []string{file}},
		{`{"kv-tokens": "many"}`, nil, []string{"kv-tokens", "many"}},
		{`{}`, []string{"--kv-tokens", "0"}, []string{"--kv-tokens is 0"}},
		{`{}`, []string{"--kv-tokens", "10", "--kv-memory", "1GiB"}, []string{"--kv-memory and --kv-tokens"}},
		{`{}`, []string{"--itl-target=-1ms"}, []string{"--itl-target is -1ms"}},
		{`{}`, []string{"--kv-memory", "much"}, []string{"much", "4GiB"}},
		{`{}`, []string{"--kv-memory", "1KB", "--addr", "127.0.0.1:0"}, []string{"--kv-memory is 1000B", "page"}},
		{`{}`, []string{"--tls-cert", file}, []string{"--tls-key"}},
		{`{}`, []string{"--api-key-file", file}, []string{"api-key-file"}},
		{`{}`, []string{"--profile", "h100"}, []string{"--backend sim"}},
		{`{}`, []string{"--addr", "nowhere:at:all"}, []string{"--addr"}},
	} {
		write(tc.text)
		_, stderr, ok := command(t, append([]string{"serve", "--config", file}, tc.args...)...)
		for _, want := range tc.want {
			if ok || !strings.Contains(stderr, want) || strings.Contains(stderr, "goroutine") {
				t.Errorf("%s %q: ok %v, printed %s, want %q", tc.text, tc.args, ok, stderr, want)
			}
		}
	}
}

func TestParseKeys(t *testing.T) {
	keys, err := parseKeys("# keys\nacme: secret-one\n\n acme :secret-two\nroot: secret:three admin\r\n")
	if err != nil || len(keys) != 3 || keys[1].Tenant != "acme" || keys[1].Secret != "secret-two" || !keys[2].Admin || keys[2].Secret != "secret:three" || keys[0].Admin {
		t.Errorf("%v %v", keys, err)
	}
	for _, bad := range []string{"", "# none", "secret-one", ": secret-one", "acme:", "acme: secret-one boss", "acme: secret one admin"} {
		if _, err := parseKeys(bad); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestByteSize(t *testing.T) {
	for text, want := range map[string]byteSize{"4GiB": 4 << 30, "500MB": 500e6, "1.5KiB": 1536, "12": 12, "12 B": 12, "0": 0} {
		var b byteSize
		if err := b.UnmarshalText([]byte(text)); err != nil || b != want {
			t.Errorf("%q is %d, %v, want %d", text, b, err, want)
		}
		var again byteSize
		if err := again.UnmarshalText([]byte(b.String())); err != nil || again != b {
			t.Errorf("%d is printed as %s, which is %d: %v", b, b, again, err)
		}
	}
	for _, bad := range []string{"", "GiB", "-1", "4 GiBs", "NaN", "1e30TiB", "4gib"} {
		var b byteSize
		if err := b.UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%q is %d", bad, b)
		}
	}
}
