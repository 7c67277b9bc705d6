package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

var realRecord = flag.Bool("real-record", false, "TestRealRecord: write the answers in testdata/real, by llama-server in PATH and the Python of -real-python")

// transformers is a running tools/models/score.py.
type transformers struct {
	*testing.T
	in      io.Writer
	out     *bufio.Reader
	version string
}

func startTransformers(t *testing.T, file string) *transformers {
	t.Helper()
	cmd := exec.Command(*realPython, "../../tools/models/score.py", file)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close() // it ends at the end of its input
		if err := cmd.Wait(); err != nil {
			t.Errorf("score.py: %v", err)
		}
	})
	tr := &transformers{T: t, in: in, out: bufio.NewReader(out)}
	tr.read(&tr.version)
	return tr
}

func (tr *transformers) read(into any) {
	tr.Helper()
	line, err := tr.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, into)
	}
	if err != nil {
		tr.Fatalf("score.py: %v: %.300s", err, line)
	}
}

// score scores tokens after the prompt.
func (tr *transformers) score(prompt, tokens []kv.Token) (s scored) {
	tr.Helper()
	question, err := json.Marshal(map[string][]kv.Token{"prompt": prompt, "tokens": tokens})
	if err == nil {
		_, err = fmt.Fprintf(tr.in, "%s\n", question)
	}
	if err != nil {
		tr.Fatal(err)
	}
	tr.read(&s)
	return s
}

// TestRealRecord writes the answers that TestRealTokens takes: of llama.cpp, and with -real-python of transformers. What it
// has got so far is kept as TestRealTokens keeps it.
func TestRealRecord(t *testing.T) {
	if !*realRecord {
		t.Skip("writes testdata/real; run it with -args -real-record")
	}
	p := pair{smol, smol.weights, kv.F16, realRecorded}
	file, prompts := smol.path(t), makeRealPrompts(t)[:realRecorded]
	if *realPrompts > 0 {
		prompts = prompts[:min(*realPrompts, len(prompts))]
	}
	kept, version := openResults(t, filepath.Join(resultsDir(t), "tokens.jsonl")), peerVersion(t, "llama-server")
	ours := newScorer(t, file, p.kvType)
	var l *llama
	var answers []scored
	for _, prompt := range prompts {
		answers = append(answers, keep(kept, p.key(prompt)+"llama.cpp "+version, func() scored {
			if l == nil {
				l = startLlama(t, file, append(llamaKV(p.kvType), "-c", "4096")...)
			}
			return l.continued(ours.encode(prompt.text))
		}))
	}
	writeRecorded(t, p, "llama.cpp", version, prompts, answers)
	if *realPython == "" {
		return
	}
	tr := startTransformers(t, file)
	var others []scored
	for i, prompt := range prompts {
		others = append(others, keep(kept, p.key(prompt)+"transformers of "+*realPython, func() scored {
			return tr.score(ours.encode(prompt.text), answers[i].Tokens)
		}))
		writeRecorded(t, p, "transformers", tr.version, prompts[:i+1], others)
	}
}

func writeRecorded(t *testing.T, p pair, program, version string, prompts []realPrompt, answers []scored) {
	t.Helper()
	r := recorded{Program: program, Version: version, Date: time.Now().UTC().Format(time.DateOnly), Weights: p.weights, KV: p.kvType, Prompts: hashPrompts(prompts), Answers: answers}
	data, err := json.Marshal(r)
	if err == nil {
		err = os.WriteFile(fmt.Sprintf(recordedFile, program), append(data, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}
