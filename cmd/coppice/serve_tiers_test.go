package main

import (
	"strings"
	"testing"
)

// TestTierFlags checks that bad tiers are refused with advice.
func TestTierFlags(t *testing.T) {
	for _, tc := range []struct{ args, says string }{
		{"--kv-disk /tmp/x", "want one like /var/cache/coppice:20GiB"},
		{"--kv-disk :20GiB", "want one like /var/cache/coppice:20GiB"},
		{"--kv-share /tmp/x:much", `"much" is not a size; want one like 4GiB`},
		{"--kv-disk /tmp/x:0", "want more than 0"},
		{"--kv-host lots", "want one like 4GiB"},
		{"--kv-host 1KiB", "--kv-host: Bytes is 1024, want at least"},
		{"--kv-write sideways --kv-host 1GiB", "want back, selective or through"},
		{"--kv-write through", "give --kv-host, --kv-disk or --kv-share too"},
		{"--kv-flush=-1s --kv-host 1GiB", "--kv-flush is -1s, want at least 0s"},
		{"--kv-shrink --kv-host 1GiB", "give --kv-disk or --kv-share too"},
		{"--kv-disk /tmp/x:1GiB --kv-share /tmp/x/:1GiB", "give each its own directory"},
	} {
		_, out, ok := command(t, append([]string{"serve", "--addr", "127.0.0.1:0", "--backend", "sim", "--kv-tokens", "4096"}, strings.Fields(tc.args)...)...)
		if ok || !strings.Contains(out, tc.says) {
			t.Errorf("%s: ok %v, says %q, want %q", tc.args, ok, out, tc.says)
		}
	}
	out, _, ok := command(t, "serve", "--print-config", "--kv-disk", "/tmp/a:b:1.5GiB", "--kv-host", "1GiB")
	if !ok || !strings.Contains(out, "/tmp/a:b:1536MiB") {
		t.Errorf("ok %v, says %s", ok, out)
	}
}
