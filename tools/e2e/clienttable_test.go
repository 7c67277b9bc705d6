package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The places of the two tables in docs/clients.md.
const (
	clientsPage  = "../../docs/clients.md"
	featuresMark = "<!-- table: go test . -run TestClients -clients DIR -client-results FILE -update -->\n"
	modelsMark   = "<!-- table by model, by the same command -->\n"
	tableEnd     = "<!-- end -->"
)

// features returns the table of what each client gets from the demo: a line for each client of which
// there are results.
func (b *book) features() string {
	var table strings.Builder
	fmt.Fprintf(&table, "| client | version | %s |\n|---|---|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
	for _, c := range roster {
		line, version := "", ""
		for _, column := range columns {
			if r, ok := b.find("demo", c.client, c.language, column); ok {
				line += " " + r.Cell + " |"
				version = r.Version
			}
		}
		if line != "" {
			fmt.Fprintf(&table, "| %s (%s) | %s |%s\n", c.client, c.language, version, line)
		}
	}
	return table.String()
}

// byModel returns the table of what each client gets from each model.
func (b *book) byModel() string {
	var table strings.Builder
	table.WriteString("| client |")
	for _, m := range clientModels {
		table.WriteString(" " + m.title + " |")
	}
	table.WriteString("\n|---|" + strings.Repeat("---|", len(clientModels)) + "\n")
	for _, c := range roster {
		fmt.Fprintf(&table, "| %s (%s) |", c.client, c.language)
		for _, m := range clientModels {
			table.WriteString(" " + b.outcome(m.name, c.client, c.language) + " |")
		}
		table.WriteString("\n")
	}
	return table.String()
}

// outcome sums up a client's cases on a model.
func (b *book) outcome(model, client, language string) string {
	var good, bad, faults []string
	for _, column := range columns {
		r, ok := b.find(model, client, language, column)
		switch {
		case !ok || r.Cell == "–":
		case !r.Valid:
			faults = append(faults, column)
		case r.Sensible || model == "demo": // whose answers can't be sensible
			good = append(good, column)
		default:
			bad = append(bad, column)
		}
	}
	all := len(good) + len(bad) + len(faults)
	if all == 0 {
		return "not run"
	}
	says := fmt.Sprintf("%d of %d", len(good), all)
	if len(bad) > 0 {
		says += "; not sensible: " + strings.Join(bad, ", ")
	}
	if len(faults) > 0 {
		says += "; fault: " + strings.Join(faults, ", ")
	}
	return says
}

// holdRows compares lines of the table of features with those of the document.
func holdRows(t *testing.T, table string) {
	t.Helper()
	_, old, _ := cutTable(t, readClientsPage(t), featuresMark)
	for line := range strings.Lines(table) {
		if !strings.Contains(old, "\n"+line) {
			t.Errorf("%s has another line: look at it, and run this with -client-results and -update\n%s", clientsPage, line)
		}
	}
}

// writeTables writes both tables into the document.
func writeTables(t *testing.T, features, byModel string) {
	t.Helper()
	doc := readClientsPage(t)
	for _, table := range []struct{ mark, text string }{{featuresMark, features}, {modelsMark, byModel}} {
		head, _, tail := cutTable(t, doc, table.mark)
		doc = head + "\n" + table.text + "\n" + tail
	}
	if err := os.WriteFile(clientsPage, []byte(doc), 0o644); err != nil {
		t.Fatal(err)
	}
}

func readClientsPage(t *testing.T) string {
	t.Helper()
	doc, err := os.ReadFile(clientsPage)
	if err != nil {
		t.Fatal(err)
	}
	return string(doc)
}

// cutTable splits a document into what ends with a table's mark, the table, and the rest.
func cutTable(t *testing.T, doc, mark string) (head, table, tail string) {
	t.Helper()
	head, rest, found := strings.Cut(doc, mark)
	table, tail, closed := strings.Cut(rest, tableEnd)
	if !found || !closed {
		t.Fatalf("%s has no place for a table: %q to %q", clientsPage, mark, tableEnd)
	}
	return head + mark, table, tableEnd + tail
}

// TestClientTables writes results to a file, reads them as the next run does, and sums them up.
func TestClientTables(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results")
	b := openBook(t, path)
	for _, m := range clientModels {
		for _, c := range roster {
			for _, column := range columns {
				r := clientResult{Model: m.name, Client: c.client, Language: c.language, Version: "1.0", Case: column, Cell: "yes", Valid: true, Sensible: m.name != "demo"}
				switch {
				case strings.Contains(c.without, column):
					r.Cell = "–"
				case c.client == "llm" && column == "tools":
					r.Cell, r.Sensible = "offered", false
				case m.name == "smollm2" && c.client == "ai" && column == "usage":
					r.Cell, r.Valid, r.Sensible = "fault", false, false
				}
				b.add(t, r)
			}
		}
	}
	last := b.results[len(b.results)-1]
	if err := os.WriteFile(path+"2", cutOff(t, path, 20), 0o644); err != nil {
		t.Fatal(err)
	}
	b = openBook(t, path+"2")
	want := last.Model + "/" + slug(last.Client, last.Language) + "/" + last.Case
	if missing := b.missing(); len(missing) != 1 || missing[0] != want {
		t.Errorf("missing %v, want %v", missing, want)
	}
	b.add(t, last)
	if missing := openBook(t, path+"2").missing(); len(missing) != 0 {
		t.Errorf("missing %v", missing)
	}
	for _, line := range []string{"| lm-eval (Python) | 1.0 | yes | – | – | – | – | – | – |", "| llm (Python) | 1.0 | yes | yes | offered | yes | yes | yes | yes |"} {
		if !strings.Contains(b.features(), line+"\n") {
			t.Errorf("no line %q in\n%s", line, b.features())
		}
	}
	for _, line := range []string{"| llm (Python) | 7 of 7 | 6 of 7; not sensible: tools | 6 of 7; not sensible: tools |", "| ai (JavaScript) | 7 of 7 | 6 of 7; fault: usage | 7 of 7 |", "| lm-eval (Python) | 1 of 1 | 1 of 1 | 1 of 1 |"} {
		if !strings.Contains(b.byModel(), line+"\n") {
			t.Errorf("no line %q in\n%s", line, b.byModel())
		}
	}
}

// cutOff returns a file without its last n bytes.
func cutOff(t *testing.T, path string, n int) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text[:len(text)-n]
}
