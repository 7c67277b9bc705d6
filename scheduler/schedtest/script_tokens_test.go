package schedtest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// parseTokens parses the token notation of scripts: see [Script].
func (s *Script) parseTokens(items []string) ([]kv.Token, error) {
	var all []kv.Token
	for _, item := range items {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		base, times := item, 1
		if i := strings.LastIndexByte(item, '*'); i >= 0 {
			n, err := strconv.Atoi(item[i+1:])
			if err != nil || n < 0 {
				return nil, fmt.Errorf("tokens %q: how often is %q?", item, item[i+1:])
			}
			base, times = item[:i], n
		}
		tokens, err := s.parseItem(base)
		if err != nil {
			return nil, err
		}
		for range times {
			all = append(all, tokens...)
		}
	}
	return all, nil
}

func (s *Script) parseItem(item string) ([]kv.Token, error) {
	if name, ok := strings.CutPrefix(item, "@"); ok {
		return s.parseReference(item, name)
	}
	if lo, hi, ok := strings.Cut(item, ".."); ok {
		a, err1 := strconv.ParseUint(lo, 10, 32)
		b, err2 := strconv.ParseUint(hi, 10, 32)
		if err1 != nil || err2 != nil || a > b || b-a > 1<<20 {
			return nil, fmt.Errorf("tokens %q: want a range like 0..19", item)
		}
		var tokens []kv.Token
		for t := a; t <= b; t++ {
			tokens = append(tokens, kv.Token(t))
		}
		return tokens, nil
	}
	if n, err := strconv.ParseUint(item, 10, 32); err == nil {
		return []kv.Token{kv.Token(n)}, nil
	}
	var tokens []kv.Token
	for _, c := range []byte(item) {
		if c < 'a' || c > 'z' {
			return nil, fmt.Errorf("tokens %q: want a number, a range, small letters or a reference", item)
		}
		tokens = append(tokens, kv.Token(c))
	}
	return tokens, nil
}

func (s *Script) parseReference(item, name string) ([]kv.Token, error) {
	name, cut, isCut := strings.Cut(name, ":")
	name, part, _ := strings.Cut(name, ".")
	id, err := strconv.ParseUint(name, 10, 64)
	o := s.orders[scheduler.RequestID(id)]
	if err != nil || o == nil {
		return nil, fmt.Errorf("tokens %q: there was no such request", item)
	}
	var tokens []kv.Token
	switch part {
	case "":
		tokens = slices.Concat(o.req.Prompt, o.samples[0].got)
	case "prompt":
		tokens = slices.Clone(o.req.Prompt)
	case "out":
		tokens = slices.Clone(o.samples[0].got)
	default:
		return nil, fmt.Errorf("tokens %q: want .prompt or .out", item)
	}
	if isCut {
		n, err := strconv.Atoi(cut)
		if err != nil || n < 0 || n > len(tokens) {
			return nil, fmt.Errorf("tokens %q: want a cut from 0 to %d", item, len(tokens))
		}
		tokens = tokens[:n]
	}
	return tokens, nil
}
