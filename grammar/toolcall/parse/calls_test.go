package parse

import (
	"flag"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/grammar/toolcall"
)

var update = flag.Bool("update", false, "rewrite testdata/calls.txt")

// row is an output in a form.
type row struct {
	form *toolcall.Form
	text string
}

// readRows returns the outputs in testdata/calls.txt: valid, broken and cut calls of every form.
// The tools are testTools.
func readRows(t testing.TB) (rows []row) {
	var form *toolcall.Form
	for _, line := range strings.Split(readFile(t), "\n") {
		name, ok := strings.CutPrefix(line, "# ")
		switch {
		case ok:
			if form = toolcall.FormByName(name); form == nil {
				t.Fatalf("there is no form %q", name)
			}
		case line != "" && line[0] != ' ' && form != nil:
			text, err := strconv.Unquote(line)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			rows = append(rows, row{form, text})
		}
	}
	return rows
}

func readFile(t testing.TB) string {
	text, err := os.ReadFile("testdata/calls.txt")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestCalls reads the outputs in testdata/calls.txt. Below each stands what a parser makes of it,
// texts in quotes, reasoning in brackets and calls with their arguments, and, if it differs, what
// a parser makes of it that gives arguments as they arrive.
func TestCalls(t *testing.T) {
	got, form := calledHead, (*toolcall.Form)(nil)
	for _, r := range readRows(t) {
		if r.form != form {
			form = r.form
			got += "\n# " + form.Name + "\n"
		}
		line := strconv.Quote(r.text)
		if strconv.CanBackquote(r.text) {
			line = "`" + r.text + "`"
		}
		o := Options{Form: r.form, Tools: testTools}
		whole := show(split(NewParser(o), r.text, nil))
		o.Exact = true
		exact := show(split(NewParser(o), r.text, nil))
		got += line + "\n  " + whole + "\n"
		if exact != whole {
			got += "  exact: " + exact + "\n"
		}
	}
	if *update {
		if err := os.WriteFile("testdata/calls.txt", []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want := strings.Split(readFile(t), "\n")
	for i, line := range strings.Split(got, "\n") {
		if i >= len(want) || line != want[i] {
			t.Fatalf("line %d is\n%s, want\n%s", i+1, line, strings.Join(want[min(i, len(want)):min(i+1, len(want))], ""))
		}
	}
	for _, f := range toolcall.Forms() {
		if !strings.Contains(got, "# "+f.Name+"\n") {
			t.Errorf("no outputs of form %s", f.Name)
		}
	}
}

const calledHead = `Outputs of each form, as Go strings, and what a parser makes of them: texts in quotes, reasoning in brackets, calls
with their arguments; then, after "exact:", what it makes of them if it gives arguments as they arrive, where that
differs. The tools are f, g and weather. go test ./grammar/toolcall -run TestCalls -update rewrites what stands below
the outputs.
`

// TestDepth: brackets may be nested 64 deep, those of the call among them, and no deeper.
func TestDepth(t *testing.T) {
	for form, around := range map[string][2]string{
		"hermes":       {`<tool_call>{"name": "f", "arguments": {"a": `, `}}</tool_call>`},
		"mistral_args": {`[TOOL_CALLS]f[ARGS] {"a": {"b": `, `}}`},
		"pythonic":     {`[f(a={"b": `, `})]`},
	} {
		for _, deep := range []int{62, 63} {
			text := around[0] + strings.Repeat("[", deep) + strings.Repeat("]", deep) + around[1]
			p := NewParser(Options{Form: toolcall.FormByName(form), Tools: testTools})
			if split(p, text, nil); p.Calls() != 64-deep-1 {
				t.Errorf("%s: %d calls, %d brackets deep", form, p.Calls(), deep+2)
			}
		}
	}
}
