package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/shared"
)

// columns lists the features tested with each client, in the order of the table.
var columns = []string{"text", "stream", "tools", "structured", "second turn", "usage"}

// without lists the columns for which a client has no feature.
var without = map[string]string{"lm-eval": "stream, tools, structured, second turn, usage"}

// clientRow is a line of clients.py or clients.mjs about one client. A cell whose name begins with
// "after" has the error of that column.
type clientRow struct {
	Client, Language, Version string
	Cells                     map[string]string
}

// TestClients runs published clients, each with its defaults and a second turn, against a generated
// model, and compares the results with the table in docs/clients.md.
func TestClients(t *testing.T) {
	if *clientsFlag == "" {
		t.Skip("needs -clients DIR, as clients/install.py makes it")
	}
	dir, err := filepath.Abs(*clientsFlag)
	if err != nil {
		t.Fatal(err)
	}
	p := launch(t, http.DefaultClient, []string{"serve"}, []string{"--default-max-tokens", "600"})
	p.model = "demo"
	rows := p.clientRows(exec.Command(filepath.Join(dir, "py/bin/python"), "clients/clients.py", "--url", p.url, "--model", p.model))
	rows = append(rows, p.clientRows(exec.Command("node", "clients/clients.mjs", filepath.Join(dir, "js"), p.url, p.model))...)
	rows = append(rows, p.openaiGo())
	var table strings.Builder
	fmt.Fprintf(&table, "| client | version | %s |\n|---|---|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
	for _, r := range rows {
		fmt.Fprintf(&table, "| %s (%s) | %s |", r.Client, r.Language, r.Version)
		for _, c := range columns {
			fmt.Fprintf(&table, " %s |", r.Cells[c])
			if r.Cells[c] == "–" && !strings.Contains(without[r.Client], c) {
				t.Errorf("%s %s: nothing of column %q", r.Client, r.Version, c)
			}
		}
		fmt.Fprintln(&table)
		for name, wrong := range r.Cells {
			if strings.HasPrefix(name, "after") {
				t.Errorf("%s %s, %s: %s", r.Client, r.Version, name, wrong)
			}
		}
	}
	t.Logf("\n%s", table.String())
	p.quiet(p.client)
	holdTable(t, "../../docs/clients.md", table.String())
}

// clientRows runs a script and parses its lines.
func (p *process) clientRows(cmd *exec.Cmd) (rows []clientRow) {
	p.t.Helper()
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	cmd.Env = append(os.Environ(), "LITELLM_LOCAL_MODEL_COST_MAP=True") // it would fetch prices
	out, err := cmd.Output()
	if err != nil {
		p.t.Fatalf("%v: %v\n%s", cmd, err, complaints.String())
	}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		var r clientRow
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			p.t.Fatalf("%v printed %q", cmd, lines.Text())
		}
		rows = append(rows, r)
	}
	if len(rows) < 2 {
		p.t.Fatalf("%v: %d clients\n%s", cmd, len(rows), complaints.String())
	}
	return rows
}

// openaiGo runs the same requests as the scripts, with the Go client of this module.
func (p *process) openaiGo() clientRow {
	p.t.Helper()
	r := clientRow{Client: "openai-go", Language: "Go", Cells: map[string]string{}}
	pins, err := os.ReadFile("go.mod")
	if err != nil {
		p.t.Fatal(err)
	}
	if m := regexp.MustCompile(`github\.com/openai/openai-go/v3 v(\S+)`).FindSubmatch(pins); m != nil {
		r.Version = string(m[1])
	}
	took := func(column string, ok bool, got any) {
		r.Cells[column] = "yes"
		if !ok {
			r.Cells["after "+column] = fmt.Sprint(got)
		}
	}
	ask := openai.ChatCompletionNewParams{Model: p.model, Messages: []openai.ChatCompletionMessageParamUnion{openai.SystemMessage("Be brief."), openai.UserMessage("The weather?")}}
	whole := p.chat(ask)
	for tries := 1; tries < 3 && whole.Choices[0].Message.Content == ""; tries++ { // random weights end one answer in 300 at once
		whole = p.chat(ask)
	}
	took("text", whole.Choices[0].Message.Content != "", whole.RawJSON())
	streamed := ask
	streamed.StreamOptions.IncludeUsage = openai.Bool(true)
	all, _ := p.chatStream(streamed)
	for tries := 1; tries < 3 && all.Choices[0].Message.Content == ""; tries++ {
		all, _ = p.chatStream(streamed)
	}
	took("stream", all.Choices[0].Message.Content != "", all)
	u, v := whole.Usage, all.Usage
	took("usage", u.PromptTokens > 0 && u.TotalTokens == u.PromptTokens+u.CompletionTokens && v.PromptTokens == u.PromptTokens && v.CompletionTokens > 0, whole.RawJSON())

	kind := map[string]any{"type": "string", "enum": []string{"sun", "rain"}}
	schema := map[string]any{"type": "object", "properties": map[string]any{"kind": kind}, "required": []string{"kind"}, "additionalProperties": false}
	armed := ask
	armed.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{Name: "forecast", Parameters: schema})}
	armed.ToolChoice = openai.ChatCompletionToolChoiceOptionUnionParam{OfAuto: openai.String("required")}
	called := p.chat(armed).Choices[0]
	all, _ = p.chatStream(armed)
	took("tools", called.FinishReason == "tool_calls" && len(called.Message.ToolCalls) > 0 && len(all.Choices[0].Message.ToolCalls) > 0, called.RawJSON())

	armed.ToolChoice = openai.ChatCompletionToolChoiceOptionUnionParam{}
	armed.Messages = append(armed.Messages, called.Message.ToParam())
	for _, c := range called.Message.ToolCalls {
		armed.Messages = append(armed.Messages, openai.ToolMessage("sunny", c.ID))
	}
	then := p.chat(armed)
	took("second turn", then.Usage.PromptTokensDetails.CachedTokens > 0, then.RawJSON())

	shaped := ask
	shaped.ResponseFormat.OfJSONSchema = &shared.ResponseFormatJSONSchemaParam{JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{Name: "weather", Strict: openai.Bool(true), Schema: schema}}
	var got struct{ Kind string }
	text := p.chat(shaped).Choices[0].Message.Content
	err = json.Unmarshal([]byte(text), &got)
	took("structured", err == nil && (got.Kind == "sun" || got.Kind == "rain"), text)
	return r
}

// holdTable compares the table in a document with the expected one, or with -update writes it.
func holdTable(t *testing.T, path, table string) {
	t.Helper()
	const begin, end = "<!-- table: go test . -run TestClients -clients DIR -update -->\n", "<!-- end -->"
	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, found := strings.Cut(string(doc), begin)
	old, tail, closed := strings.Cut(rest, end)
	switch {
	case !found || !closed:
		t.Fatalf("%s has no place for the table: %q to %q", path, begin, end)
	case old == "\n"+table+"\n":
	case !*updateFlag:
		t.Errorf("%s has another table: look at it and run this with -update", path)
	case t.Failed():
	default:
		if err := os.WriteFile(path, []byte(head+begin+"\n"+table+"\n"+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
