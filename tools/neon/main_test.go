package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// files lists what go generate writes to engine/cpu: a set, a level and the beginning of the names.
var files = []struct{ set, isa, name string }{
	{"floats", "neon", "kernel_neon_arm64"},
	{"quants", "neon", "kernel_neonquant_arm64"},
	{"quants", "neondot", "kernel_neondotquant_arm64"},
}

// TestCommittedFilesAreCurrent generates all files into a temporary directory and compares them with
// the committed ones.
func TestCommittedFilesAreCurrent(t *testing.T) {
	for _, f := range files {
		dir := t.TempDir()
		names := []string{f.name + ".s", f.name + ".go"}
		if err := run([]string{"-set", f.set, "-isa", f.isa, "-out", filepath.Join(dir, names[0]), "-stubs", filepath.Join(dir, names[1])}); err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			want, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(filepath.Join("../../engine/cpu", name))
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("engine/cpu/%s is not what the generator writes (%v): run go generate ./engine/cpu", name, err)
			}
		}
	}
}

// TestWrongArguments checks that nothing is written for arguments that make no sense.
func TestWrongArguments(t *testing.T) {
	out, stubs := filepath.Join(t.TempDir(), "a.s"), filepath.Join(t.TempDir(), "a.go")
	for _, args := range [][]string{{}, {"-isa", "sve"}, {"-set", "all"}, {"more"}} {
		if err := run(append([]string{"-out", out, "-stubs", stubs}, args...)); (err != nil) != (len(args) > 0) {
			t.Errorf("%v: %v", args, err)
		}
		if _, err := os.Stat(out); (err == nil) != (len(args) == 0) {
			t.Errorf("%v: the file is there: %v", args, err == nil)
		}
		os.Remove(out)
	}
}

// TestLevelsAreKept: an instruction that a level lacks is refused, and one that it has is not.
func TestLevelsAreKept(t *testing.T) {
	for isa, features := range levels {
		a := &assembly{suffix: strings.ToUpper(isa), features: features}
		k := a.kernel("dot", "(p *byte)", "is planted.")
		k.word(0x4e829420, dot, "sdot v0.4s, v1.16b, v2.16b")
		if refused := len(a.refused) == 1; refused != (isa == "neon") {
			t.Errorf("%s refuses SDOT: %v", isa, a.refused)
		}
	}
}

// word is an instruction that a file has as a WORD, and the mnemonic in its comment.
type word struct {
	code uint32
	text string
}

var wordLine = regexp.MustCompile(`^\tWORD \$0x([0-9a-f]{8}) // (.*)$`)

// words returns the different words of an assembly file. A WORD in any other form is an error.
func words(path string) (all []word, err error) {
	file, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	seen := map[word]bool{}
	for lines := bufio.NewScanner(bytes.NewReader(file)); lines.Scan(); {
		m := wordLine.FindStringSubmatch(lines.Text())
		if m == nil {
			if strings.Contains(lines.Text(), "WORD") {
				return nil, fmt.Errorf("%s: %q has no code or no mnemonic", path, lines.Text())
			}
			continue
		}
		code, err := strconv.ParseUint(m[1], 16, 32)
		if err != nil {
			return nil, err
		}
		if w := (word{uint32(code), m[2]}); !seen[w] {
			seen[w] = true
			all = append(all, w)
		}
	}
	return all, nil
}

// disassembler returns the first of binutils' disassemblers on this machine that knows arm64.
func disassembler(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"aarch64-linux-gnu-objdump", "objdump"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		if out, err := exec.Command(path, "--info").CombinedOutput(); err == nil && bytes.Contains(out, []byte("aarch64")) {
			return path
		}
	}
	t.Skip("no disassembler for arm64: install binutils-aarch64-linux-gnu")
	return ""
}

// disassembled returns the text of each word, without its comment and with single spaces.
func disassembled(t *testing.T, objdump string, all []word) []string {
	t.Helper()
	var code []byte
	for _, w := range all {
		code = binary.LittleEndian.AppendUint32(code, w.code)
	}
	file := filepath.Join(t.TempDir(), "code")
	if err := os.WriteFile(file, code, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(objdump, "--disassemble-all", "--disassemble-zeroes", "--target=binary", "--architecture=aarch64", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		if fields := strings.SplitN(lines.Text(), "\t", 3); len(fields) == 3 { // "  offset:\tcode\ttext"
			text, _, _ := strings.Cut(fields[2], "//")
			texts = append(texts, strings.Join(strings.Fields(text), " "))
		}
	}
	if len(texts) != len(all) {
		t.Fatalf("%d words are %d lines", len(all), len(texts))
	}
	return texts
}

// TestWordsAreTheirMnemonics disassembles each WORD of the committed files.
func TestWordsAreTheirMnemonics(t *testing.T) {
	objdump := disassembler(t)
	for _, f := range files {
		all, err := words(filepath.Join("../../engine/cpu", f.name+".s"))
		if err != nil || len(all) < 100 {
			t.Fatalf("%s has %d words: %v", f.name, len(all), err)
		}
		for i, text := range disassembled(t, objdump, all) {
			if text != all[i].text {
				t.Errorf("%s: %08x is %s, and its comment says %s", f.name, all[i].code, text, all[i].text)
			}
		}
		t.Logf("%s: %d different words", f.name, len(all))
	}
}

// TestWrongMnemonicsAreFound plants a word with another register and one without a mnemonic.
func TestWrongMnemonicsAreFound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.s")
	plant := func(line string) ([]word, error) {
		if err := os.WriteFile(path, []byte(line+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return words(path)
	}
	if got, err := plant("\tWORD $0x4e21d400"); err == nil {
		t.Errorf("a word without a mnemonic: %v", got)
	}
	planted, err := plant("\tWORD $0x4e21d400 // fadd v0.4s, v0.4s, v2.4s")
	if err != nil {
		t.Fatal(err)
	}
	if got := disassembled(t, disassembler(t), planted)[0]; got == planted[0].text || got != "fadd v0.4s, v0.4s, v1.4s" {
		t.Errorf("the planted word is %q", got)
	}
}
