package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPrintConfigJSON checks that the output of --print-config=json gives the same settings
// when read, and contains no keys.
func TestPrintConfigJSON(t *testing.T) {
	dir := t.TempDir()
	file, twin := filepath.Join(dir, "coppice.json"), filepath.Join(dir, "twin.json")
	example := regexp.MustCompile(`(?s)\{"addr".*?\}\}\}`).FindString(helpOf("serve")) // the example of the help
	if err := os.WriteFile(file, []byte(example), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"serve", "--config", file},
		{"serve", "--config", file, "--itl-target", "30ms", "--kv-memory", "4GiB", "--no-page", "--allow-host", "a.example,b.example", "--model-name", "a,b", "--otlp-sample", "0.5"},
		{"route", "--worker", "http://a:1,http://b:2", "--weight", "ttft=2;itl=0.5", "--max-queued", "9"},
	} {
		first, stderr, ok := command(t, append(args, "--print-config=json")...)
		if !ok || !json.Valid([]byte(first)) {
			t.Fatalf("%q: %s %s", args, first, stderr)
		}
		if err := os.WriteFile(twin, []byte(first), 0o644); err != nil {
			t.Fatal(err)
		}
		if again, stderr, _ := command(t, args[0], "--config", twin, "--print-config=json"); again != first {
			t.Errorf("%q: read back it prints %s%s, want %s", args, again, stderr, first)
		}
		table := func(args ...string) string { // with file names removed
			out, stderr, ok := command(t, append(args, "--print-config")...)
			if !ok {
				t.Fatalf("%q: %s", args, stderr)
			}
			var b bytes.Buffer
			for line := range strings.Lines(out) {
				if fields := strings.Fields(line); fields[0] != "config" {
					b.WriteString(strings.Join(fields[:len(fields)-1], " ") + "\n")
				}
			}
			return b.String()
		}
		if one, two := table(args...), table(args[0], "--config", twin); one != two {
			t.Errorf("%q: read back the settings are\n%s, want\n%s", args, two, one)
		}
	}
	out, _, ok := command(t, "serve", "--api-key", "hidden-secret", "--publish", "nats://me:hidden@a:1", "--print-config=json")
	if !ok || strings.Contains(out, "hidden") {
		t.Errorf("printed with secrets: %s", out)
	}
	if _, stderr, ok := command(t, "serve", "--print-config=yaml"); ok || !strings.Contains(stderr, `"yaml" is not a form; want table or json`) {
		t.Errorf("yaml: %s", stderr)
	}
}

// TestHelpShowsKeys checks that the help's example of a file of keys is valid.
func TestHelpShowsKeys(t *testing.T) {
	example := regexp.MustCompile(`(?m)(^  (#|\w+:).*\n)+`).FindString(helpOf("serve"))
	keys, err := parseKeys(example)
	if err != nil || len(keys) != 2 || keys[0].Tenant != "acme" || keys[0].Admin || !keys[1].Admin {
		t.Errorf("%q gives %v, %v", example, keys, err)
	}
}

// TestWrongValues checks that a bad value gets one sentence with the flag and its valid values.
func TestWrongValues(t *testing.T) {
	for _, tc := range []struct {
		args string
		want string
	}{
		{"serve --itl-target x", `--itl-target: "x" is not a duration; want one like 50ms, 30s or 10m`},
		{"serve --drain 5", `--drain: "5" is not a duration; want one like 50ms, 30s or 10m`},
		{"serve --max-requests many", `--max-requests: "many" is not a whole number`},
		{"serve --otlp-sample x", `--otlp-sample: "x" is not a number`},
		{"make-model --seed x m", `--seed: "x" is not a whole number of 0 or more`},
		{"serve --kv-tokens", `--kv-tokens needs a value`},
		{"serve --model", `--model needs a value`},
		{"serve --addr 127.0.0.1:0 --model /missing.gguf", `there is no file or directory /missing.gguf; --model takes a GGUF file, a Hugging Face model directory or hf:owner/name, which downloads one; coppice models lists those that are here`},
		{"chat --model /missing.gguf", `there is no file or directory /missing.gguf; --model takes a GGUF file, a Hugging Face model directory or hf:owner/name, which downloads one; coppice models lists those that are here`},
		{"pull", `give a model as argument`},
		{"route --worker", `--worker needs a value`},
		{"serve --api-key-file /missing", `--api-key-file /missing: no such file or directory`},
		{"serve --config /missing", `--config /missing: no such file or directory`},
		{"serve --model-name a,,b", `--model-name has "" among ["a" "" "b"], want different names, separated by commas`},
		{"serve --sampling-defaults vllm", `--sampling-defaults: "vllm" is not a choice; want model or neutral`},
	} {
		_, stderr, ok := command(t, strings.Fields(tc.args)...)
		first, _, _ := strings.Cut(stderr, "\n")
		if ok || first != "coppice: "+tc.want {
			t.Errorf("%s: %s, want %s", tc.args, stderr, tc.want)
		}
	}
}

// TestServersShareBounds: a flag that means the same in serve and route has the same bounds.
func TestServersShareBounds(t *testing.T) {
	for flag, low := range map[string]string{"--drain=-1s": "0s", "--drain=8761h": "0s", "--max-body=0": "1B", "--max-body=2TiB": "1B", "--max-conns=0": "1", "--max-conns=16777217": "1",
		"--write-timeout=1us": "1ms", "--write-timeout=25h": "1ms", "--block-tokens=0": "1", "--block-tokens=8192": "1"} {
		_, serve, ok1 := command(t, "serve", "--addr", "127.0.0.1:0", flag)
		_, route, ok2 := command(t, "route", "--addr", "127.0.0.1:0", flag)
		if ok1 || ok2 || serve != route || !strings.Contains(serve, "want "+low+" to ") {
			t.Errorf("%s: %v %s%v %s", flag, ok1, serve, ok2, route)
		}
	}
}
