package isatest

import (
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/cpuid/v2"

	"github.com/coppice-llm/coppice/internal/isa"
)

// planted is a line of objdump, without its offset.
func planted(t *testing.T, line string) instruction {
	t.Helper()
	listed, err := parse([]byte("   0:\t" + line))
	if err != nil || len(listed) != 1 {
		t.Fatalf("%q: %d instructions, %v", line, len(listed), err)
	}
	return listed[0]
}

// TestInstructions checks instructions against each level: the wanted levels are those that promise all
// that the instruction needs.
func TestInstructions(t *testing.T) {
	all := slices.DeleteFunc(isa.Levels(), func(l isa.Level) bool { return l.Arch() != "amd64" })
	wide := []isa.Level{isa.AVX512, isa.AVX512VNNI}
	for line, want := range map[string][]isa.Level{
		"c5 f4 58 da            \tvaddps ymm3,ymm1,ymm2":                        all,
		"c5 e4 c2 e9 01         \tvcmplt_oqps ymm5,ymm3,ymm1":                   all,
		"c4 e2 75 b8 c2         \tvfmadd231ps ymm0,ymm1,ymm2":                   all,
		"c4 e2 7d 13 c1         \tvcvtph2ps ymm0,xmm1":                          all,
		"0f 18 48 40            \tprefetcht0 BYTE PTR [rax+0x40]":               all,
		"66 48 0f 6e c0         \tmovq   xmm0,rax":                              all,
		"c5 fc 10 2d 56 29 0f 00\tvmovups ymm5,YMMWORD PTR [rip+0xf] # 0x103aa": all,
		"c4 e2 6d 50 d9         \t{vex} vpdpbusd ymm3,ymm2,ymm1":                {isa.AVXVNNI},
		"62 f2 6d 28 50 d9      \tvpdpbusd ymm3,ymm2,ymm1":                      {isa.AVX512VNNI},
		"62 f2 6d 48 50 d9      \tvpdpbusd zmm3,zmm2,zmm1":                      {isa.AVX512VNNI},
		"62 f1 7d 20 fe d1      \tvpaddd ymm2,ymm16,ymm1":                       wide,
		"62 f1 6d 28 db cb      \tvpandd ymm1,ymm2,ymm3":                        wide,
		"62 f1 7c a9 10 ca      \tvmovups ymm1{k1}{z},ymm2":                     wide,
		"62 f1 6d 28 76 cb      \tvpcmpeqd k1,ymm2,ymm3":                        wide,
		"62 f1 6c 48 58 cb      \tvaddps zmm1,zmm2,zmm3":                        wide,
		"62 f2 6d 48 00 cb      \tvpshufb zmm1,zmm2,zmm3":                       wide,
		"c5 f8 90 ca            \tkmovw  k1,k2":                                 wide,
		"c4 e1 f8 90 ca         \tkmovq  k1,k2":                                 wide,
		"c4 e2 e9 f7 c1         \tshlx   rax,rcx,rdx":                           nil, // BMI2
		"f3 48 0f b8 c1         \tpopcnt rax,rcx":                               nil, // in no list
		"62 f2 7d 48 55 ca      \tvpopcntd zmm1,zmm2":                           nil,
		"06                     \t(bad)":                                        nil,
		"62                     \t.byte 0x62":                                   nil,
	} {
		i := planted(t, line)
		var got []isa.Level
		for _, level := range all {
			if i.check(level.Features()) == nil {
				got = append(got, level)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v: levels %v have it, want %v", i, got, want)
		}
	}
}

// TestEachFeatureCounts takes one feature off a level: an instruction that needs it is refused, and the
// error names both.
func TestEachFeatureCounts(t *testing.T) {
	for _, c := range []struct {
		level   isa.Level
		without cpuid.FeatureID
		line    string
	}{
		{isa.AVX2, cpuid.AVX, "c5 f4 58 da\tvaddps ymm3,ymm1,ymm2"},
		{isa.AVX2, cpuid.AVX2, "c5 ed fe c9\tvpaddd ymm1,ymm2,ymm1"},
		{isa.AVX2, cpuid.FMA3, "c4 e2 75 b8 c2\tvfmadd231ps ymm0,ymm1,ymm2"},
		{isa.AVX2, cpuid.F16C, "c4 e2 7d 13 c1\tvcvtph2ps ymm0,xmm1"},
		{isa.AVX512, cpuid.AVX512F, "62 f1 6c 48 58 cb\tvaddps zmm1,zmm2,zmm3"},
		{isa.AVX512, cpuid.AVX512BW, "62 f2 6d 48 00 cb\tvpshufb zmm1,zmm2,zmm3"},
		{isa.AVX512, cpuid.AVX512DQ, "62 f1 6c 48 57 cb\tvxorps zmm1,zmm2,zmm3"},
		{isa.AVX512, cpuid.AVX512VL, "62 f1 7d 20 fe d1\tvpaddd ymm2,ymm16,ymm1"},
		{isa.AVX512VNNI, cpuid.AVX512VNNI, "62 f2 6d 48 50 d9\tvpdpbusd zmm3,zmm2,zmm1"},
		{isa.AVXVNNI, cpuid.AVXVNNI, "c4 e2 6d 50 d9\t{vex} vpdpbusd ymm3,ymm2,ymm1"},
	} {
		i, features := planted(t, c.line), c.level.Features()
		if err := i.check(features); err != nil {
			t.Errorf("%s: %v", c.level, err)
		}
		err := i.check(slices.DeleteFunc(features, func(f cpuid.FeatureID) bool { return f == c.without }))
		if err == nil || !strings.Contains(err.Error(), c.without.String()) || !strings.Contains(err.Error(), i.text) {
			t.Errorf("%s without %v: %v", c.level, c.without, err)
		}
	}
}

// TestFunctions checks names and reports: each wrong mnemonic of a function is reported once.
func TestFunctions(t *testing.T) {
	wide, dot := planted(t, "62 f1 7d 20 fe d1\tvpaddd ymm2,ymm16,ymm1"), planted(t, "c4 e2 6d 50 d9\t{vex} vpdpbusd ymm3,ymm2,ymm1")
	for name, wants := range map[string][]string{
		"sumAVX2":       {"sumAVX2, level avx2: vpaddd ymm2,ymm16,ymm1 (62 f1", "vpdpbusd ymm3,ymm2,ymm1 (c4 e2 6d 50 d9): its VEX form needs AVXVNNI"},
		"sumAVXVNNI":    {"needs AVX512F and AVX512VL"},
		"sumAVX512":     {"needs AVXVNNI"},
		"sumAVX512VNNI": {"needs AVXVNNI"},
		"sum":           {"ends in none of the levels"},
		"sumAVX":        {"ends in none of the levels"},
	} {
		got := checkFunction(name, []instruction{wide, dot, wide, dot})
		if len(got) != len(wants) {
			t.Errorf("%s: %v, want %d errors", name, got, len(wants))
			continue
		}
		for i, want := range wants {
			if !strings.Contains(got[i].Error(), want) {
				t.Errorf("%s: %q, want %q", name, got[i], want)
			}
		}
	}
}

// TestLists: no instruction is listed twice in an encoding, which would hide the features of one row.
func TestLists(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range rows {
		for _, m := range strings.Fields(r.mnemonics) {
			if seen[string(r.coded)+m] {
				t.Errorf("%s is listed twice for %s", m, r.coded)
			}
			seen[string(r.coded)+m] = true
		}
	}
}

// TestParse checks that a line which is no instruction as expected is an error.
func TestParse(t *testing.T) {
	for _, line := range []string{"  zz:\t90\tnop", "   0:\t9\tnop", "   0:\t\tnop"} {
		if got, err := parse([]byte(line)); err == nil {
			t.Errorf("%q: %v", line, got)
		}
	}
	got, err := parse([]byte("\ncode:     file format binary\n\n00000000 <.data>:\n   0:\t0f 1f 00             \tnop    DWORD PTR [rax]\n  1f:\tc3\tret\n"))
	if err != nil || len(got) != 2 || got[0].text != "nop    DWORD PTR [rax]" || !slices.Equal(got[0x1f].code, []byte{0xc3}) {
		t.Errorf("%v, %v", got, err)
	}
}

// TestCodeIsDecodedToItsEnd: an instruction that is cut off at a function's end is an error, although the
// bytes after it complete it.
func TestCodeIsDecodedToItsEnd(t *testing.T) {
	listed, err := parse([]byte("   0:\t0f 1f 00\tnop    DWORD PTR [rax]\n   3:\tc3\tret\n   4:\t62 f1 7d 20 fe d1\tvpaddd ymm2,ymm16,ymm1\n"))
	if err != nil {
		t.Fatal(err)
	}
	for hi, want := range map[int]int{0: 0, 2: -1, 3: 1, 4: 2, 5: -1, 9: -1, 10: 3, 11: -1} {
		code, err := within(listed, 0, hi)
		if (err != nil) != (want < 0) || err == nil && len(code) != want {
			t.Errorf("to byte %d: %v, %v; want %d", hi, code, err, want)
		}
	}
}

func kernelAVX2()   {}
func kernelAVX512() {}
func kernel()       {}

// TestKernelsOfAnotherLevel: a set of kernels for AVX2 with one of AVX-512 in it is found wherever it hides.
func TestKernelsOfAnotherLevel(t *testing.T) {
	type set struct {
		one  func()
		more *[]func()
	}
	for what, c := range map[string]struct {
		level   isa.Level
		kernels any
		want    string // "" if the set is right
	}{
		"its own":              {isa.AVX2, set{kernelAVX2, &[]func(){kernelAVX2}}, ""},
		"one of a level below": {isa.AVX512, &set{one: kernelAVX2, more: &[]func(){kernelAVX512}}, ""},
		"one of a level above": {isa.AVXVNNI, set{kernelAVX2, &[]func(){nil, kernelAVX512}}, "AVX512F"},
		"one without level":    {isa.AVX2, kernel, "no level"},
		"none":                 {isa.AVX2, set{}, "no function"},
		"nil":                  {isa.AVX2, (*set)(nil), "no function"},
	} {
		got := checkKernels(c.level, c.kernels)
		if (len(got) > 0) != (c.want != "") || len(got) > 0 && !strings.Contains(got[0].Error(), c.want) {
			t.Errorf("%s: %v, want %q", what, got, c.want)
		}
	}
}
