package deploy

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"sigs.k8s.io/yaml"

	// The filters and policies that envoy.yaml names by type.
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/override_host/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
)

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestCompose loads compose.yaml by Compose's own schema. The services are those that Envoy and the
// picker name, and every file that it mounts or builds from exists.
func TestCompose(t *testing.T) {
	details := types.ConfigDetails{WorkingDir: ".", ConfigFiles: []types.ConfigFile{{Filename: "compose.yaml", Content: read(t, "compose.yaml")}}}
	project, err := loader.LoadWithContext(context.Background(), details, func(o *loader.Options) { o.SetProjectName("coppice", true) })
	if err != nil {
		t.Fatal(err)
	}
	if len(project.Services) != 5 {
		t.Errorf("services %v", project.ServiceNames())
	}
	envoy, picker := string(read(t, "envoy.yaml")), strings.Join(project.Services["picker"].Command, " ")
	for name, s := range project.Services {
		if s.Build != nil {
			if _, err := os.Stat(filepath.Join(s.Build.Context, s.Build.Dockerfile)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, v := range s.Volumes {
			if _, err := os.Stat(v.Source); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if strings.HasPrefix(name, "worker-") && (!strings.Contains(envoy, "address: "+name+",") || !strings.Contains(picker, "http://"+name+":8000")) {
			t.Errorf("%s is not in envoy.yaml or not at the picker", name)
		}
	}
}

// TestEnvoyConfig decodes envoy.yaml into Envoy's own types, with those of its filters, and checks their
// bounds.
func TestEnvoyConfig(t *testing.T) {
	json, err := yaml.YAMLToJSONStrict(read(t, "envoy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var b bootstrapv3.Bootstrap
	if err := protojson.Unmarshal(json, &b); err != nil {
		t.Fatal(err)
	}
	if err := b.ValidateAll(); err != nil {
		t.Error(err)
	}
	if s := b.GetStaticResources(); len(s.GetListeners()) != 1 || len(s.GetClusters()) != 2 {
		t.Errorf("%d listeners, %d clusters", len(s.GetListeners()), len(s.GetClusters()))
	}
}

// documented returns the metrics that docs/metrics.md lists.
func documented(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(coppice_[a-z_]+)` \\|").FindAllSubmatch(read(t, "../../../docs/metrics.md"), -1) {
		names[string(m[1])] = true
	}
	return names
}

// TestAlertsNameMetrics: each metric of an alert exists.
func TestAlertsNameMetrics(t *testing.T) {
	known := documented(t)
	alerts := read(t, "chart/files/alerts.yaml")
	names := regexp.MustCompile(`coppice_[a-z_]+`).FindAllString(string(alerts), -1)
	if len(names) < 9 || len(known) < 100 {
		t.Fatalf("%d metrics in alerts, %d in docs", len(names), len(known))
	}
	for _, name := range names {
		if !known[name] && !known[strings.TrimSuffix(name, "_bucket")] {
			t.Errorf("an alert reads %s, which docs/metrics.md does not have", name)
		}
	}
}

// TestAlerts runs the rules' unit tests. It also breaks each rule, and then its test must fail.
func TestAlerts(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed")
	}
	rules, tests := read(t, "chart/files/alerts.yaml"), read(t, "alerts_test.yaml")
	run := func(rules []byte) error {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, "chart/files"), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string][]byte{"chart/files/alerts.yaml": rules, "alerts_test.yaml": tests} {
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command(promtool, "test", "rules", "alerts_test.yaml")
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Logf("%s", out)
		}
		return err
	}
	if err := run(rules); err != nil {
		t.Fatal(err)
	}
	if testing.Short() {
		return
	}
	alerts := regexp.MustCompile(`alert: (\w+)`).FindAllSubmatch(rules, -1)
	for _, m := range alerts {
		renamed := bytes.Replace(rules, m[0], []byte("alert: Other"), 1)
		if run(renamed) == nil {
			t.Errorf("no test expects %s", m[1])
		}
	}
}

// TestDashboards: the chart's dashboards are those of docs.
func TestDashboards(t *testing.T) {
	c := loaded(t)
	for _, name := range []string{"server", "router"} {
		want, found := read(t, "../../../docs/grafana/"+name+".json"), false
		for _, f := range c.Files {
			found = found || f.Name == "files/"+name+".json" && bytes.Equal(f.Data, want)
		}
		if !found {
			t.Errorf("the chart has not %s.json of docs/grafana", name)
		}
	}
}
