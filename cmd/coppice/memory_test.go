package main

import (
	"testing"
	"testing/fstest"
)

// files makes a file system of texts by their paths.
func files(texts map[string]string) fstest.MapFS {
	root := fstest.MapFS{}
	for name, text := range texts {
		root[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return root
}

// TestMemoryOf checks that the lowest limit counts, of the process's control group and of those above
// it, in both versions, and that caches which the kernel can drop don't count as used.
func TestMemoryOf(t *testing.T) {
	const meminfo = "MemTotal:       24000000 kB\nMemFree:         1000000 kB\nMemAvailable:   20000000 kB\n"
	for _, tc := range []struct {
		name string
		root map[string]string
		want memory
	}{
		{"nothing to read", nil, memory{}},
		{"no limit", map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/user.slice\n", "sys/fs/cgroup/user.slice/memory.max": "max\n"},
			memory{Available: 20000000 << 10}},
		{"version 2, own group", map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/memory.max": "9000\n", "sys/fs/cgroup/a/b/memory.max": "8000\n",
			"sys/fs/cgroup/a/b/memory.current": "5000\n", "sys/fs/cgroup/a/b/memory.stat": "anon 1\nfile 3\ninactive_file 1000\n"},
			memory{Limit: 8000, Used: 4000, Group: "/sys/fs/cgroup/a/b"}},
		{"version 2, a group above", map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/memory.max": "7000\n", "sys/fs/cgroup/a/b/memory.max": "8000\n"},
			memory{Limit: 7000, Group: "/sys/fs/cgroup/a"}},
		{"version 2, a container with the host's path", map[string]string{"proc/self/cgroup": "0::/docker/x\n", "sys/fs/cgroup/memory.max": "7000\n"},
			memory{Limit: 7000, Group: "/sys/fs/cgroup"}},
		{"version 1", map[string]string{"proc/self/cgroup": "7:blkio:/\n4:cpu,memory:/a\n0::/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "6000\n", "sys/fs/cgroup/memory/a/memory.usage_in_bytes": "500\n",
			"sys/fs/cgroup/memory/a/memory.stat": "inactive_file 1\ntotal_inactive_file 600\n"},
			memory{Limit: 6000, Group: "/sys/fs/cgroup/memory/a"}},
		{"version 1, no limit with pages of 64 KiB", map[string]string{"proc/self/cgroup": "4:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854710272\n"},
			memory{}},
		{"no list of groups", map[string]string{"sys/fs/cgroup/memory.max": "7000\n"}, memory{Limit: 7000, Group: "/sys/fs/cgroup"}},
	} {
		if got := memoryOf(files(tc.root)); got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
}

// TestMemoryLeft checks which of machine and control group bounds the memory.
func TestMemoryLeft(t *testing.T) {
	for _, tc := range []struct {
		m          memory
		most, free int64
	}{
		{memory{}, 0, 0},
		{memory{Total: 100, Available: 60}, 100, 60},
		{memory{Total: 100, Available: 60, Limit: 80, Used: 10}, 80, 60},
		{memory{Total: 100, Available: 60, Limit: 80, Used: 30}, 80, 50},
		{memory{Total: 100, Available: 60, Limit: 200, Used: 30}, 100, 60},
		{memory{Total: 100, Available: 60, Limit: 80, Used: 80}, 80, 1},
		{memory{Limit: 80, Used: 30}, 80, 50},
	} {
		if most, free := tc.m.most(), tc.m.free(); most != tc.most || free != tc.free {
			t.Errorf("%+v: at most %d and free %d, want %d and %d", tc.m, most, free, tc.most, tc.free)
		}
	}
}
