package e2e

import (
	"fmt"
	"os"
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
