package isatest

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"
)

const (
	textAlign = 16   // every function begins at a multiple of it
	padding   = 0xcc // fills the room up to the next function
)

// machineCode returns the code of all assembly functions of a package, by name. It reads the code in
// memory, where the linker's table of functions finds it in every form of binary, stripped or position
// independent: a walk to both sides from a function that is surely there.
func machineCode(pkg string) map[string][]byte {
	here := machineCode
	at := **(**unsafe.Pointer)(unsafe.Pointer(&here)) // of the code: a function value points to its address
	base := uintptr(at)
	first, last := base, base
	for runtime.FuncForPC(first-textAlign) != nil {
		first -= textAlign
	}
	codes := map[string][]byte{}
	for f := runtime.FuncForPC(first); f != nil; f = runtime.FuncForPC(last) {
		for last = f.Entry(); ; last += textAlign {
			if next := runtime.FuncForPC(last); next == nil || next.Entry() != f.Entry() {
				break
			}
		}
		file, _ := f.FileLine(f.Entry()) // a Go function of the same name is the assembly's wrapper
		if name, ok := strings.CutPrefix(f.Name(), pkg+"."); ok && strings.HasSuffix(file, ".s") {
			code := unsafe.Slice((*byte)(unsafe.Add(at, int(f.Entry())-int(base))), last-f.Entry())
			for len(code) > 0 && code[len(code)-1] == padding {
				code = code[:len(code)-1]
			}
			codes[name] = code
		}
	}
	return codes
}

// gap separates functions in what objdump reads: as many NOPs as the longest instruction has bytes, so
// that one which is cut off at a function's end does not take bytes of the next.
var gap = bytes.Repeat([]byte{0x90}, 15)

// disassemble returns the instructions of each function. It skips the test without objdump.
func disassemble(t *testing.T, codes map[string][]byte) map[string][]instruction {
	t.Helper()
	objdump, err := exec.LookPath("objdump")
	if err != nil {
		t.Skip("objdump is not installed (GNU binutils): no machine code is decoded")
	}
	var all []byte
	names := slices.Sorted(maps.Keys(codes))
	for _, name := range names {
		all = slices.Concat(all, codes[name], gap)
	}
	file := filepath.Join(t.TempDir(), "code")
	if err := os.WriteFile(file, all, 0o600); err != nil {
		t.Fatal(err)
	}
	var failed bytes.Buffer
	cmd := exec.Command(objdump, "--disassemble-all", "--disassemble-zeroes", "--target=binary", "--architecture=i386:x86-64",
		"--disassembler-options=intel", "--insn-width=16", file)
	cmd.Stderr = &failed
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, &failed)
	}
	listed, err := parse(out)
	if err != nil {
		t.Fatal(err)
	}
	decoded := map[string][]instruction{}
	offset := 0
	for _, name := range names {
		if decoded[name], err = within(listed, offset, offset+len(codes[name])); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		offset += len(codes[name]) + len(gap)
	}
	return decoded
}

// within returns the instructions from offset lo to hi. They must fill the range.
func within(listed map[int]instruction, lo, hi int) (code []instruction, err error) {
	for lo < hi {
		i, ok := listed[lo]
		if !ok || lo+len(i.code) > hi {
			return nil, fmt.Errorf("the last %d bytes are no instruction", hi-lo)
		}
		code = append(code, i)
		lo += len(i.code)
	}
	return code, nil
}

// parse reads the output of objdump and returns its instructions by offset.
func parse(out []byte) (map[int]instruction, error) {
	listed := map[int]instruction{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		fields := strings.SplitN(lines.Text(), "\t", 3) // "  offset:\tbytes in hex\tmnemonic operands"
		if len(fields) != 3 {
			continue
		}
		offset, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(fields[0]), ":"), 16, 31)
		if err != nil {
			return nil, fmt.Errorf("objdump's line %q has no offset: %w", lines.Text(), err)
		}
		code, err := hex.DecodeString(strings.ReplaceAll(fields[1], " ", ""))
		if err != nil || len(code) == 0 {
			return nil, fmt.Errorf("objdump's line %q has no bytes", lines.Text())
		}
		listed[int(offset)] = instruction{code, strings.TrimSpace(fields[2])}
	}
	return listed, nil
}
