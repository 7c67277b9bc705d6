package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/server"
)

// TestCacheDump dumps the tree of a server in each format, as an administrator and as a tenant.
func TestCacheDump(t *testing.T) {
	t.Parallel()
	server := startCoppice(t, "server", "serve", "--addr", "127.0.0.1:0", "--model", nano(t), "--api-key", "very-secret", "--no-page")
	dump := func(args ...string) (out, stderr string) {
		t.Helper()
		out, stderr, ok := command(t, append([]string{"cache", "dump", "--url", server.url, "--api-key", "very-secret"}, args...)...)
		if !ok {
			t.Fatalf("%q: %s", args, stderr)
		}
		return out, stderr
	}
	if out, _ := dump(); out != "" {
		t.Errorf("an empty tree: %q", out)
	}
	if _, stderr, ok := talk(t, "What is light, and of what colours?\n/clear\nWhat is shade?\n", "--url", server.url, "--api-key", "very-secret"); !ok {
		t.Fatal(stderr)
	}
	text, _ := dump()
	nodes := strings.Count(text, "pages")
	if nodes < 3 || strings.Count(text, "namespace ") != 1 || !strings.Contains(text, " tail") || !strings.Contains(text, "What is") {
		t.Errorf("text: %s", text)
	}
	if dot, _ := dump("--format", "dot", "--tokens", "2"); !strings.HasPrefix(dot, "digraph") || !strings.HasSuffix(dot, "}\n") || strings.Count(dot, " -> ") != nodes || !strings.Contains(dot, "root -> ") {
		t.Errorf("dot: %s", dot)
	}
	lines, stderr := dump("--format", "json", "--nodes", "2", "--tokens", "3")
	for i, line := range strings.Split(strings.TrimSpace(lines), "\n") {
		n := &nodeOf{}
		if err := json.Unmarshal([]byte(line), n); err != nil || n.Tokens == 0 || len(n.First) == 0 || len(n.First) > 3 || i > 1 {
			t.Errorf("line %d: %v %+v", i, err, n)
		}
	}
	if !strings.Contains(stderr, "more nodes are left out") {
		t.Errorf("%q of %d nodes", stderr, nodes)
	}
	refused(t, []string{"refuses the key"}, "cache", "dump", "--url", server.url)
	refused(t, []string{"--format"}, "cache", "dump", "--format", "xml")
}

type nodeOf = server.NodeFigures

const dumped = `{"nodes":[{"id":3,"parent":0,"salted":false,"start":0,"tokens":32,"first":[1,2],"text":"a\u001b","pages":2,"leaf":false,"tail":false,"pins":2,"hits":7,"stamp":9},
{"id":2,"parent":3,"salted":false,"start":32,"tokens":5,"first":[1,2,3,4,5],"pages":1,"leaf":true,"tail":true,"pins":0,"hits":0,"stamp":4},
{"id":5,"parent":3,"lora":"say \"hi\"\\","salted":true,"start":32,"tokens":16,"pages":1,"leaf":true,"tail":false,"pins":0,"hits":0,"stamp":5},
{"id":6,"parent":3,"lora":"say \"hi\"\\","salted":true,"start":32,"tokens":16,"pages":1,"leaf":true,"tail":false,"pins":0,"hits":0,"stamp":6}],"truncated":8}`

// TestDumpFormats checks the formats of a fixed tree, and trees that are cut short.
func TestDumpFormats(t *testing.T) {
	for format, want := range map[string]string{
		"text": `namespace model="" lora="" salted=false
  #3 [0,32) tokens [1 2 …] 2 pages hits 7 pins 2 stamp 9 "a\x1b"
    #2 [32,37) tokens [1 2 3 4 5] 1 pages stamp 4 tail
    namespace model="" lora="say \"hi\"\\" salted=true
      #5 [32,48) 1 pages stamp 5
      #6 [32,48) 1 pages stamp 6
`,
		"dot": `digraph radixcache {
	node [shape=box fontname=monospace]
	root [shape=point]
	n3 [label="#3 [0,32)\n[1 2 …]\n2 pages" penwidth=3]
	root -> n3 [label="model=\"\" lora=\"\" salted=false"]
	n2 [label="#2 [32,37)\n[1 2 3 4 5]\n1 pages" style=dashed]
	n3 -> n2
	n5 [label="#5 [32,48)\n1 pages"]
	n3 -> n5 [label="model=\"\" lora=\"say \\\"hi\\\"\\\\\" salted=true"]
	n6 [label="#6 [32,48)\n1 pages"]
	n3 -> n6 [label="model=\"\" lora=\"say \\\"hi\\\"\\\\\" salted=true"]
}
`,
	} {
		c, out := cacheDumpCmd{Format: format}, &strings.Builder{}
		if hidden, err := c.write(out, strings.NewReader(dumped)); err != nil || hidden != 8 || out.String() != want {
			t.Errorf("%d hidden, %v:\n%s, want\n%s", hidden, err, out, want)
		}
		for _, bad := range []string{"", "[]", `{"tree":[]}`, dumped[:200], strings.TrimSuffix(dumped, `,"truncated":8}`), strings.Replace(dumped, `"id":2`, `"id":-2`, 1)} {
			if _, err := c.write(&strings.Builder{}, strings.NewReader(bad)); err == nil {
				t.Errorf("accepted %.40s", bad)
			}
		}
	}
}
