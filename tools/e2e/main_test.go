package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/engine/model/random"
	"github.com/coppice-llm/coppice/tokenizer"
)

var (
	binaryFlag   = flag.String("coppice", "", "program to test; default: the parent module's, built now")
	clientsFlag  = flag.String("clients", os.Getenv("COPPICE_CLIENTS"), "directory where clients/install.py has put clients, to run them; default $COPPICE_CLIENTS")
	updateFlag   = flag.Bool("update", false, "rewrite the tables of docs/clients.md, from -client-results")
	picturesFlag = flag.String("pictures", "", "existing directory for pictures of the pages (PNG): light and dark, wide and narrow")
)

// Shared by all tests: the program, a generated model that it serves as "nano", and the model's
// tokenizer, as in a program that embeds Coppice.
var (
	binary string
	nano   string
	tok    *tokenizer.Tokenizer
)

func TestMain(m *testing.M) {
	flag.DurationVar(&patience, "patience", patience, "longest wait of a test; a large model on a busy machine may need more")
	flag.Parse()
	code, err := testAll(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func testAll(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "coppice-e2e-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	if binary = *binaryFlag; binary == "" {
		binary = filepath.Join(dir, "coppice")
		build := exec.Command("go", "build", "-o", binary, "./cmd/coppice")
		build.Dir = filepath.Join("..", "..") // build with the main module's go.mod, as users do
		if out, err := build.CombinedOutput(); err != nil {
			return 0, fmt.Errorf("e2e: build coppice: %w\n%s", err, out)
		}
	} else if binary, err = filepath.Abs(binary); err != nil {
		return 0, err
	}
	nano = filepath.Join(dir, "nano")
	if err := random.Generate(nano, random.Spec{Preset: random.Nano, Seed: 1}); err != nil {
		return 0, err
	}
	opened, err := model.Open(nano)
	if err != nil {
		return 0, err
	}
	tok = opened.Tokenizer()
	if err := opened.Close(); err != nil {
		return 0, err
	}
	return m.Run(), nil
}
