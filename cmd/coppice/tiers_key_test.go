package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// secretFile writes a file of secrets, each of 32 equal bytes.
func secretFile(t *testing.T, dir string, secrets ...string) string {
	t.Helper()
	path := filepath.Join(dir, "key-"+strings.Join(secrets, ""))
	text := ""
	for _, s := range secrets {
		text += strings.Repeat(s, 32) + "\n"
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestServeKey restarts a server with the same key, another one, none, and with a new key before the
// old one. Only a server with the old key may find the KV; all must answer the same, and the cache
// commands must read the KV with the key only.
func TestServeKey(t *testing.T) {
	t.Parallel()
	base, model := t.TempDir(), nano(t)
	first, second, both := secretFile(t, base, "a1"), secretFile(t, base, "b2"), secretFile(t, base, "b2", "a1")
	args := []string{"serve", "--addr", "127.0.0.1:0", "--model", model, "--kv-tokens", "8192", "--no-page"}
	l := newTierLoad(t, 1, 2100, args) // a shared directory takes whole extents only: 2,048 tokens of this model
	args = append(args, "--kv-token-time", "1s")
	for flag, tier := range map[string]string{"--kv-disk": "disk", "--kv-share": "shared"} {
		dir := filepath.Join(base, tier)
		serve := func(more ...string) (found int, said string) {
			t.Helper()
			p := startCoppice(t, tier, append(append(args, flag, dir+":64MiB"), more...)...)
			text, u, err := l.ask(p.url, 0)
			if err != nil || text != l.want[0] {
				t.Errorf("%s %q: answers %q, want %q, %v", tier, more, text, l.want[0], err)
			}
			p.stop()
			return u.Usage.Details.Tiers[tier], p.said.String()
		}
		serve("--kv-key", first)
		if n, said := serve("--kv-key", first); n == 0 || strings.Contains(said, `"level":"warn"`) {
			t.Errorf("%s: a server with the same key finds %d tokens, and says %s", tier, n, said)
		}
		if n, said := serve("--kv-key", second); n > 0 || !strings.Contains(said, "further line") || !strings.Contains(said, dir) {
			t.Errorf("%s: a server with another key finds %d tokens, and says %s", tier, n, said)
		}
		if _, said, ok := command(t, append(args, flag, dir+":64MiB", "--kv-key", second, "--kv-required")...); ok || !strings.Contains(said, "further line") {
			t.Errorf("%s: --kv-required with another key: %v, %s", tier, ok, said)
		}
		if n, _ := serve("--kv-key", both); n == 0 {
			t.Errorf("%s: a server with the old key on a further line finds nothing", tier)
		}
		checkKeyedCache(t, dir, first)
		if n, said := serve(); n > 0 || !strings.Contains(said, "give --kv-key FILE") {
			t.Errorf("%s: a server without a key finds %d tokens, and says %s", tier, n, said)
		}
		if _, said := serve("--kv-key", first); !strings.Contains(said, "clear text") {
			t.Errorf("%s: nothing is said of KV in clear text: %s", tier, said)
		}
	}
}

// checkKeyedCache runs the cache commands on a directory whose KV is sealed with the key in a file.
func checkKeyedCache(t *testing.T, dir, key string) {
	t.Helper()
	if out, _, ok := command(t, "cache", "stat", dir); !ok || !strings.Contains(out, "sealed with a key of id") {
		t.Errorf("stat without the key: %v, %s", ok, out)
	}
	if out, said, ok := command(t, "cache", "verify", dir); ok || !strings.Contains(said, "1 directories can't be read") {
		t.Errorf("verify without the key: %v, %s%s", ok, out, said)
	}
	if out, _, ok := command(t, "cache", "prune", dir); ok || !strings.Contains(out, "unchanged") {
		t.Errorf("prune without the key: %v, %s", ok, out)
	}
	if out, _, ok := command(t, "cache", "verify", dir, "--kv-key", key); !ok || !strings.Contains(out, "sealed, key id") || strings.Contains(out, " 0 extents") {
		t.Errorf("verify with the key: %v, %s", ok, out)
	}
	if out, _, ok := command(t, "cache", "ls", dir, "--kv-key", key); !ok || !strings.Contains(out, "public") {
		t.Errorf("ls with the key: %v, %s", ok, out)
	}
	if out, _, ok := command(t, "cache", "prune", dir, "--kv-key", key); !ok || !strings.Contains(out, "removed 0 damaged records, 0 without a parent") {
		t.Errorf("prune with the key: %v, %s", ok, out)
	}
}

// TestKeyFiles checks that a file that is no safe key is refused with advice, and never quoted.
func TestKeyFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	secret := strings.Repeat("c3", 32)
	for _, tc := range []struct {
		name, text string
		mode       os.FileMode
		says       string
	}{
		{"missing", "", 0, "openssl rand -hex 32"},
		{"empty", "\n", 0o600, "openssl rand -hex 32"},
		{"short", "c3c3c3c3", 0o600, "want at least 32"},
		{"raw", secret[:63] + "\xff", 0o600, "not a secret in hexadecimal"},
		{"world-readable", secret, 0o604, "chmod 600"},
		{"twice", secret + "\n" + secret, 0o600, "given twice"},
	} {
		path := filepath.Join(dir, tc.name)
		if tc.mode != 0 {
			if err := os.WriteFile(path, []byte(tc.text), tc.mode); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, tc.mode); err != nil {
				t.Fatal(err)
			}
		}
		_, out, ok := command(t, "serve", "--addr", "127.0.0.1:0", "--backend", "sim", "--kv-tokens", "4096", "--kv-disk", dir+"/kv:1GiB", "--kv-key", path)
		if ok || !strings.Contains(out, tc.says) || !strings.Contains(out, path) || strings.Contains(out, "c3c3") {
			t.Errorf("%s: %v, says %q, want %q", tc.name, ok, out, tc.says)
		}
	}
	path := secretFile(t, dir, "c3")
	out, _, ok := command(t, "serve", "--print-config=json", "--kv-disk", dir+"/kv:1GiB", "--kv-key", path)
	if !ok || !strings.Contains(out, path) || strings.Contains(out, "c3c3") {
		t.Errorf("--print-config: %v, %s", ok, out)
	}
	_, out, ok = command(t, "serve", "--addr", "127.0.0.1:0", "--backend", "sim", "--kv-tokens", "4096", "--kv-key", path)
	if ok || !strings.Contains(out, "give --kv-disk or --kv-share too") {
		t.Errorf("a key without a directory: %v, says %q", ok, out)
	}
}
