package isatest

import (
	"fmt"
	"go/build"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/internal/isa"
)

// Check fails the test for each assembly function of the package with path pkg that is not in this
// test's binary, that has no level in its name, or that has an instruction which the level does not
// promise. The caller must be a test of that package. Check skips the test on other architectures than
// amd64, and where objdump is missing.
func Check(t *testing.T, pkg string) {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("the lists of instructions are those of amd64")
	}
	names := assembly(t)
	codes := machineCode(pkg)
	for _, name := range names {
		if codes[name] == nil {
			t.Errorf("%s is not in the test's binary: no Go code uses it, so remove it or call it", name)
		}
	}
	decoded := disassemble(t, codes)
	for _, name := range names {
		if codes[name] != nil {
			for _, err := range checkFunction(name, decoded[name]) {
				t.Error(err)
			}
		}
	}
	t.Logf("%d functions decoded", len(decoded))
}

// checkFunction returns what is wrong with a function: at most one instruction for each mnemonic.
func checkFunction(name string, code []instruction) []error {
	level, ok := levelOf(name)
	if !ok {
		return []error{fmt.Errorf("%s: the name ends in none of the levels %v in capitals", name, isa.Levels())}
	}
	var wrong []error
	seen := map[string]bool{}
	for _, i := range code {
		mnemonic, _, _ := strings.Cut(i.text, " ")
		if err := i.check(level.Features()); err != nil && !seen[mnemonic] {
			seen[mnemonic] = true
			wrong = append(wrong, fmt.Errorf("%s, level %s: %w", name, level, err))
		}
	}
	return wrong
}

// levelOf returns the level that a function's name ends in.
func levelOf(name string) (isa.Level, bool) {
	for _, l := range isa.Levels() {
		if strings.HasSuffix(name, strings.ToUpper(string(l))) {
			return l, true
		}
	}
	return "", false
}

// CheckKernels fails the test if a function that kernels holds is named after a level with features that
// the argument level lacks. kernels is a function, or a value that functions are reached from through
// structs, pointers and slices.
func CheckKernels(t *testing.T, level isa.Level, kernels any) {
	t.Helper()
	for _, err := range checkKernels(level, kernels) {
		t.Error(err)
	}
}

func checkKernels(level isa.Level, kernels any) (wrong []error) {
	found := 0
	eachFunction(reflect.ValueOf(kernels), func(name string) {
		found++
		of, ok := levelOf(name)
		if !ok {
			wrong = append(wrong, fmt.Errorf("%s, taken for level %s: the name ends in no level", name, level))
		}
		for _, f := range of.Features() {
			if !slices.Contains(level.Features(), f) {
				wrong = append(wrong, fmt.Errorf("%s, taken for level %s, may use %v, which that level does not promise", name, level, f))
			}
		}
	})
	if found == 0 {
		wrong = append(wrong, fmt.Errorf("no function is taken for level %s", level))
	}
	return wrong
}

// eachFunction calls do with the name of each function that is reached from v.
func eachFunction(v reflect.Value, do func(name string)) {
	switch v.Kind() {
	case reflect.Func:
		if !v.IsNil() {
			do(runtime.FuncForPC(v.Pointer()).Name())
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			eachFunction(v.Elem(), do)
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			eachFunction(field, do)
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			eachFunction(v.Index(i), do)
		}
	}
}

// text matches the beginning of a function in Go's assembly.
var text = regexp.MustCompile(`(?m)^TEXT\s+·?([^(<\s]+)`)

// assembly returns the names of the functions in the assembly files of the working directory, which is
// that of the tested package.
func assembly(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("*.s")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range files {
		if built, err := build.Default.MatchFile(".", file); err != nil || !built {
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range text.FindAllSubmatch(source, -1) {
			names = append(names, string(m[1]))
		}
	}
	if len(names) == 0 {
		t.Fatal("the package has no assembly: remove the call of isatest.Check")
	}
	return names
}
